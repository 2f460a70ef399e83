"""Stores of bytes with put-if-absent. They are independent of tables."""
