"""Views, which contain the file groups and files of a table as of a slot, and their checkpoints."""
