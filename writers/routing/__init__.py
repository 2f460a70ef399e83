"""Assignment of rows to existing and new file groups."""
