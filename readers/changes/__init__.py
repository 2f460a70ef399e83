"""Change feed: the rows that changed between two snapshots of a table."""
