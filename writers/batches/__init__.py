"""Preparation of batches: validation of rows, conversion to the table's columns, and search for invalid rows."""
