"""Spark integration of hoodoo."""
