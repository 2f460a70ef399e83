"""Merge of base files and log files on read."""
