"""Log files: Hudi's blocks of rows, deletes and change images."""
