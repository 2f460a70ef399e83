"""What readers hold for a time: snapshots, and the positions of consumers, that no clean may take from them."""
