"""Merge policy, which chooses the current row of each key."""
