"""State of a table at a commit, and its checkpoints."""
