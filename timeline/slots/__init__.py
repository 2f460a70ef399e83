"""Slots, which are numbered commit files of a table."""
