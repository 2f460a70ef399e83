"""Spark integration of hoodoo: the data source with batch reads, streams and writes, SQL table functions, and sinks."""
