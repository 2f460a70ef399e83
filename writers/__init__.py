"""Write operations of a table."""
