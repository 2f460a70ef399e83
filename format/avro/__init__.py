"""Conversion between Avro records and Arrow columns."""
