"""Change feed: the rows that were inserted, updated and deleted between two snapshots of a table."""
