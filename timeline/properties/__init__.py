"""What a table is: its properties, options, checks, and the schemas that it has had."""
