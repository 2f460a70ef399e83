"""Scans: which slices to read and how their rows come out."""
