"""Log files of Apache Hudi."""
