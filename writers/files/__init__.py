"""The files that a write makes: base files, rewritten or new, log files and change logs.

Knows nothing of what else the write does.
"""
