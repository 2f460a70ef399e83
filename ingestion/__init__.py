"""Ingestion jobs, which copy sources into tables exactly once."""
