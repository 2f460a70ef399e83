"""Slots, the entries of the commit sequence: their format, key sets and watermarks."""
