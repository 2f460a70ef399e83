"""Reading of file slices. A file slice is a base file with the log files on top of it."""
