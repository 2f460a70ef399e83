"""Writes of Spark DataFrames."""
