"""Catalog entries of the exported tables, created with pyiceberg (the extra `iceberg`)."""
