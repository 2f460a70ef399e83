"""SQL MERGE INTO, which changes stored rows by source rows."""
