"""Write operations: inserts, upserts, updates, deletes, overwrites and restores."""
