"""Ingestion jobs."""
