"""Choice of the current row among rows with the same key."""
