"""Transactions, conflict detection and retries of commits."""
