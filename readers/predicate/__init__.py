"""The `where` argument of reads and writes: parsers, syntax tree, file pruning and row filtering."""
