"""Stores: object storage or local folders for the files of a table, with atomic creation of files."""
