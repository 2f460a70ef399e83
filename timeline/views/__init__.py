"""File view: the file groups and files as of a slot, and checkpoints of views."""
