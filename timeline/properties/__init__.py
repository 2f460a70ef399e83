"""Properties of a table: its configuration and schema history."""
