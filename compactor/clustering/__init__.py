"""Clustering: sorting and packing rows into new file groups, concurrently with writers."""
