"""Detection of Spark sessions and other Spark objects, without importing Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from hoodoo.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def require_spark_session(spark: Any) -> None:
    kind = type(spark)
    if not any(each.__module__.startswith("pyspark.") and each.__name__ == "SparkSession" for each in kind.__mro__):
        raise EngineError(
            f"Option spark must be a Spark session, got a {kind.__name__}. Pass SparkSession.builder.getOrCreate().",
            type=kind.__name__,
        )


def is_spark_dataframe(data: object) -> TypeGuard[DataFrame]:
    return type(data).__module__.startswith("pyspark.sql")
