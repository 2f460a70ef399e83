"""Clustering: sorting and packing rows into new file groups while writers go on."""
