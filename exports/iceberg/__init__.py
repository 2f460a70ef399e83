"""Iceberg export: Iceberg metadata in `metadata/` that refers to hoodoo's base files."""
