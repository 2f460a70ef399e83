"""hoodoo: keyed-upsert tables in pure Python on Apache Hudi's open format."""
