"""Clustering: rewrites small or unsorted files into larger, sorted files."""
