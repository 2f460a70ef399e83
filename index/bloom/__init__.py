"""Index with bloom filters and key hashes."""
