"""What takes files away: cleaning, retention, purging, archiving, and sweeping up after dead writers."""
