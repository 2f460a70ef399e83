"""File slices, which are base files with their logs."""
