"""Command line `hoodoo`."""
