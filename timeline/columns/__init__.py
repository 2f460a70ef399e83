"""Column changes of a table, and the file rewrites that they need."""
