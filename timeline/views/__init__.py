"""The file view: which file groups and files there are as of a slot, and its checkpoints."""
