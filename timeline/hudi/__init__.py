"""Reader and writer for Apache Hudi's timeline."""
