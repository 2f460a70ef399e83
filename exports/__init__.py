"""Exports of a table as Delta or Iceberg metadata that refers to hoodoo's base files.

Rows are not copied.
"""
