"""Catalog entries for tables and their exports, in catalogs that pyiceberg supports (the extra `iceberg`)."""
