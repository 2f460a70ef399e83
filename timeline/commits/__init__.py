"""Commits of slots: transactions, conflict detection and retries."""
