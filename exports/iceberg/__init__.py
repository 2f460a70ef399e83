"""The table as an Iceberg table: metadata in `metadata/` that names hoodoo's base files."""
