"""Clustering: rewriting of small or unsorted files into larger, sorted files, concurrently with writers."""
