"""Command `hoodoo demo`."""
