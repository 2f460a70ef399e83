"""The operations that change rows."""
