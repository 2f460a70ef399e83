"""Writes of Spark DataFrames: tasks prepare the rows, and exchange them as staged files."""
