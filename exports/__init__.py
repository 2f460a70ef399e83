"""Exports of a table as Delta or Iceberg metadata.

The metadata refers to hoodoo's base files. Rows are not copied.
"""
