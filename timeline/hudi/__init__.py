"""Apache Hudi's timeline, read and written by hoodoo."""
