"""What a table is: its properties, options, checks of rows, and the schemas that it has had."""
