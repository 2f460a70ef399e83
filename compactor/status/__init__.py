"""What the services owe and how they fare: figures, lag, advice, metrics."""
