"""Catalog entries for tables and their exports.

pyiceberg (the extra `iceberg`) supports the catalogs.
"""
