"""Table services and the worker process."""
