"""Numbered commit files of a table, called slots."""
