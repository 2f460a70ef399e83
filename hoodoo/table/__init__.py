"""The public `Table` class and its internal handle. The methods of `Table` are grouped into modules by topic.

This package checks arguments and delegates the work. Spark's data source and the command line are built on it.
"""

from hoodoo.table.table import Table, create, open

__all__ = ["Table", "create", "open"]
