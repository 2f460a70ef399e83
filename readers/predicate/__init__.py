"""`where`: its text, its tree, what it prunes and which rows it chooses."""
