"""Command line `hoodoo`: argument parsing, implementation of the commands, and output."""
