"""Bloom filter index, with a bloom filter and sorted key hashes for each base file."""
