"""Bloom filter index: for each base file, a bloom filter and the sorted hashes of its record keys."""
