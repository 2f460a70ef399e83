"""Compaction of log files."""
