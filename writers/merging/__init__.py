"""MERGE: rows of a source and stored rows of one key meet, and clauses say what becomes of them."""
