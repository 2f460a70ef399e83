"""Leases and consumers that protect files from cleaning."""
