"""Jobs that ingest a source into a table."""
