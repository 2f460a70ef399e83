"""Change data: the inserts, updates and deletes between two snapshots of a table."""
