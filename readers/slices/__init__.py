"""Reading of file slices, which consist of a base file and its log files."""
