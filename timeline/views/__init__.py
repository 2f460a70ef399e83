"""Views of a table's state at a commit."""
