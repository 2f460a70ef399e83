"""Compaction: chooses file groups with too many log files, and merges their logs into base files or larger logs."""
