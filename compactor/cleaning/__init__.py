"""Table services that delete files."""
