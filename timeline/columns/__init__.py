"""Changes of a table's columns, and what they cost."""
