"""The bloom-filter index: per base file its key range, bloom filter and sorted key hashes."""
