"""Assignment of rows to files."""
