"""Column changes of a table, such as renames, and the choice of files that have to be rewritten for them."""
