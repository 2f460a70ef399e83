"""Column changes of a table, such as renames, and the selection of files that they must rewrite."""
