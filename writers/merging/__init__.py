"""Support for SQL MERGE INTO."""
