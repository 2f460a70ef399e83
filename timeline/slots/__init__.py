"""Slots, the entries of the commit sequence: what they say, and which of them are still there."""
