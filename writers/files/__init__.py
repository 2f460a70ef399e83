"""Files of a write: base files, new or rewritten, log files and change logs."""
