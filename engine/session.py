"""Is it a Spark session? Asked without importing Spark."""

from __future__ import annotations

from typing import Any

from hoodoo.errors import EngineError


def require_session(spark: Any) -> None:
    """Raise EngineError where `spark` is no session, classic or Connect."""
    kind = type(spark)
    if not any(each.__module__.startswith("pyspark.") and each.__name__ == "SparkSession" for each in kind.__mro__):
        raise EngineError(
            f"A Spark session is needed, got a {kind.__name__}; pass what SparkSession.builder.getOrCreate() gives.",
            type=kind.__name__,
        )
