"""Readers: scans, change data, lookups and verification of tables."""
