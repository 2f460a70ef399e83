"""What takes files away: cleaning, retention, purging, archiving, sweeping."""
