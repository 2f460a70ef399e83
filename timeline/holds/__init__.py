"""Holds of readers, which cleaning respects: leases on snapshots, and the positions of consumers."""
