"""Status of table services: figures, lag, advice and metrics."""
