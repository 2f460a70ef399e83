"""Preparation of batches: validating rows, converting them to the table's columns, and finding bad rows."""
