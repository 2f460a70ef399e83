"""Compaction: choice of the file groups with too many log files, and merge of their logs into base files or larger
logs.
"""
