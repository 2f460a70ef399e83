"""Export of a table as Iceberg metadata."""
