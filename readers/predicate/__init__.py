"""The `where` argument: its parsers, its syntax tree, pruning and row filtering."""
