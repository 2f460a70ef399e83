"""Staging of Spark DataFrames in temporary files."""
