"""Writes of Spark DataFrames: Spark tasks prepare the rows and store them as staged Arrow files."""
