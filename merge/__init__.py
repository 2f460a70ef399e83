"""Merge rules: they decide which version of a key wins."""
