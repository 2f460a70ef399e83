"""Delta export: a log in `_delta_log/` that references hoodoo's base files."""
