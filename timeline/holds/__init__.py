"""Protection of files against cleaning: leases on snapshots, and the positions of consumers."""
