"""Status of a table's services: figures, lag, advice for users, and Prometheus metrics."""
