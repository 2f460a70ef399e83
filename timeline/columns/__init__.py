"""Column changes of a table, such as renames."""
