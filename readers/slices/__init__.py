"""Reading of file slices. A file slice is a base file with the logs on top of it."""
