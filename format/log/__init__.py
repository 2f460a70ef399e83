"""Log files of Apache Hudi: blocks of rows, deletes and change images."""
