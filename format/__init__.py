"""Bytes and names of Apache Hudi's table format, version 9: what a file is called and what is in it, never whether it
is committed.
"""
