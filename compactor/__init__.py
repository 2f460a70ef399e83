"""Table services: compaction, cleaning and the worker process."""
