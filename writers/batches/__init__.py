"""Preparation of batches: validates rows, converts them to the table's columns, and finds invalid rows."""
