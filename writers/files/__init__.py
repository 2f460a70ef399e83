"""Writers of data files: base files, log files and change logs."""
