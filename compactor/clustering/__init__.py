"""Clustering: rewrites small or unsorted files into larger, sorted files while writers continue to write."""
