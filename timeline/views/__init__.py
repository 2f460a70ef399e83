"""Views (the state of a table as of a slot) and their checkpoints."""
