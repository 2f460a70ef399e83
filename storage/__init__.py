"""Stores of bytes with put-if-absent; they know nothing of tables."""
