"""Compaction: merges the log files of file groups into base files or larger logs."""
