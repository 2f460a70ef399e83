"""Numbered commit files of a table."""
