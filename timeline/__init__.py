"""Timeline of a table: instants, slots and transactions, which define the writes and their order."""
