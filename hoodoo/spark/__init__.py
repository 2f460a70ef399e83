"""hoodoo inside Spark: the data source with batch reads, streams and writes, table functions for SQL, and sinks."""
