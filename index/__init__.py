"""Which file group may hold a key."""
