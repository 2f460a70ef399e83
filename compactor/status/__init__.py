"""Status of a table's services."""
