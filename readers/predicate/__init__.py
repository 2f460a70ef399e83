"""Predicates, which are conditions on rows."""
