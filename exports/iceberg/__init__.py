"""Iceberg export: metadata in `metadata/` that references hoodoo's base files."""
