"""Rows that changed between two snapshots."""
