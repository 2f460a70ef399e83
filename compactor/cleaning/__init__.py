"""Table services that delete files: cleaning, retention, purging, archiving and orphan removal."""
