"""Delta export: a Delta log in `_delta_log/` that refers to hoodoo's base files."""
