"""What becomes of a batch: its rows checked and converted to the table's columns, the bad ones found."""
