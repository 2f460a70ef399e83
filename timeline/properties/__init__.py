"""Configuration and schema history of a table."""
