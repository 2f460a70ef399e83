"""Instants, slots and transactions: which writes exist and in which order."""
