"""Merge (SQL MERGE INTO): matches source rows to stored rows by key, and applies clauses that change rows."""
