"""Stores for the files of a table, in object storage or in local folders, with atomic creation of files."""
