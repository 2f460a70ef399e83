"""Public class `Table` and its implementation.

This package checks arguments and delegates the work. Spark's data source and the command line are built on it.
"""

from hoodoo.table.table import Table, open

__all__ = ["Table", "open"]
