"""Status of a table's services: figures, pending work, advice and Prometheus metrics."""
