"""The bloom-filter index: per base file a bloom filter and sorted key hashes."""
