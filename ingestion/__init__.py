"""Ingestion jobs, which copy the rows of a source into a table exactly once."""
