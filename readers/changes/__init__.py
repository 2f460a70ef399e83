"""Change data: what became of each row between two snapshots of a table."""
