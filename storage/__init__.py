"""Storage of table files."""
