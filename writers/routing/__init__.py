"""Routing: assignment of the rows of a batch to existing and new file groups."""
