"""How tasks run: in this process or on Spark."""
