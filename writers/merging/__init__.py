"""Merge (SQL MERGE INTO): clauses update, delete or insert rows, based on source rows matched to stored rows by key."""
