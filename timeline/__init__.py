"""Timeline of a table: its commits and their order."""
