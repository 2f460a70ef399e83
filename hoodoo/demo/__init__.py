"""Command `hoodoo demo`, an example job that keeps a table of flights up to date."""
