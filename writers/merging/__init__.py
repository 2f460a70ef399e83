"""Merge (SQL MERGE INTO): source rows are matched to stored rows by key, and clauses update, delete or insert rows."""
