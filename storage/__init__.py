"""Stores for the files of a table, with atomic file creation."""
