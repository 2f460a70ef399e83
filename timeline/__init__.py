"""Timeline of a table, which defines the committed writes and their order by instants, slots and transactions."""
