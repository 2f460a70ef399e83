"""Conditions that select rows of a read or write."""
