"""Export of a table as a Delta log."""
