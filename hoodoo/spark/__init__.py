"""hoodoo inside Spark: the data source, streams, bounded writes, SQL views and functions, exactly-once sinks."""
