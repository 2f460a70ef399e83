"""Choice of the current row of each key."""
