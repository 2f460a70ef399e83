"""Exports of a table: a Delta log and Iceberg metadata for hoodoo's base files. No rows are copied."""
