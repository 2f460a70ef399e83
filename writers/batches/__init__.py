"""Preparation of batches for a write."""
