"""State of a table at a commit."""
