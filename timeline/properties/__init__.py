"""Configuration of a table: its properties, options, checks and schema history."""
