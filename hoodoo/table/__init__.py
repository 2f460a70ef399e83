"""A table as its users see it: `Table`, whose methods stand by what they do, and the handle that all of them share.

Checks arguments and delegates. Knows neither Spark's data source nor the command line, which work through it.
"""

from hoodoo.table.table import Table, create, open

__all__ = ["Table", "create", "open"]
