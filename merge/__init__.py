"""Merge rules, which decide which of several rows with one record key becomes the current row."""
