"""Commits of a table and their order."""
