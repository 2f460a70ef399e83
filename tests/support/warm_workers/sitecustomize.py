"""Imports of the Python workers of Spark. The daemon of Spark makes them once, instead of each worker that it forks."""

import sys

if "pyspark.daemon" in sys.orig_argv:
    import pandas  # noqa: F401

    import hoodoo.spark.source
    import hoodoo.spark.stream_write
    import hoodoo.spark.write
    import hoodoo.table.table  # noqa: F401
