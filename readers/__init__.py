"""Readers of a table."""
