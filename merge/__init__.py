"""Which version of a key wins, once for all."""
