"""Timeline of a table: its instants, slots and transactions, which define the committed writes and their order."""
