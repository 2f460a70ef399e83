"""Leases and consumers, which protect files against cleaning."""
