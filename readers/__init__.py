"""Readers: scans, change feeds, key lookups and verification of tables."""
