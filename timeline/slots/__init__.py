"""Slots, which are the numbered commit files of a table, with their key sets and archiving watermark."""
