"""From files to rows: a file slice is a base file and the logs over it."""
