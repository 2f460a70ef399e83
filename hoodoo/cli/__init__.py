"""The command line: arguments, commands, and what they show."""
