"""The table as a Delta table: a log in `_delta_log/` that names hoodoo's base files."""
