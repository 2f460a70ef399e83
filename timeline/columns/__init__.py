"""Changes of a table's columns, such as renames."""
