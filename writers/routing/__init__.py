"""Which file group takes which rows of a batch.

Knows how many rows there are and where their keys live, not how files are written.
"""
