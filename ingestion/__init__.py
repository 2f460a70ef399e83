"""Takes sources into tables: one process, exactly once, for as long as it runs."""
