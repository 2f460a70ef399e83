"""Spark DataFrames as rows to write: tasks prepare the rows and hand them to one another as files."""
