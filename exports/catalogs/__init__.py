"""Entries of the exported Iceberg table in catalogs, by pyiceberg (the extra `iceberg`)."""
