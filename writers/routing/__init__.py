"""Routing: assignment of the rows of a batch to file groups."""
