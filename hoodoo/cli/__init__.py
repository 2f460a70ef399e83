"""Command line of hoodoo: argument parsing, commands, and output."""
