"""Slots, the numbered commit files of a table: their format, key sets and archiving watermark."""
