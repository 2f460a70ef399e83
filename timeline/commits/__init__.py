"""Commit of a slot: transactions, conflict detection and retries."""
