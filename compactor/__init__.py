"""Table services such as compaction and cleaning, and the worker process that runs them."""
