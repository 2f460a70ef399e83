"""Clustering of small files into larger, sorted files."""
