"""Spark's types and Arrow's, without a session: every type that a table can hold goes there and back."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from hoodoo.engine.spark_types import arrow_schema_of, schema_to_ddl
from hoodoo.errors import SchemaError

SCHEMA = pa.schema(
    [
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("large", pa.int64()),
        ("half", pa.float32()),
        ("whole", pa.float64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(12, 3)),
        ("tags", pa.list_(pa.string())),
        ("props", pa.map_(pa.string(), pa.int64())),
        ("place", pa.struct([("x", pa.float64()), ("names", pa.list_(pa.string()))])),
    ]
)


def test_every_type_of_a_column_comes_back_from_spark() -> None:
    fields = [spark.StructField(field.name, _spark(field.type)) for field in SCHEMA]
    assert arrow_schema_of(spark.StructType(fields)) == SCHEMA


def _spark(kind: pa.DataType) -> spark.DataType:
    """The Spark type that a table's column of `kind` is read as."""
    simple = {
        pa.bool_(): spark.BooleanType(),
        pa.int32(): spark.IntegerType(),
        pa.int64(): spark.LongType(),
        pa.float32(): spark.FloatType(),
        pa.float64(): spark.DoubleType(),
        pa.string(): spark.StringType(),
        pa.binary(): spark.BinaryType(),
        pa.date32(): spark.DateType(),
        pa.timestamp("us", "UTC"): spark.TimestampType(),
        pa.timestamp("us"): spark.TimestampNTZType(),
    }
    if pa.types.is_decimal(kind):
        return spark.DecimalType(kind.precision, kind.scale)
    if pa.types.is_map(kind):
        return spark.MapType(spark.StringType(), _spark(kind.item_type))
    if pa.types.is_list(kind):
        return spark.ArrayType(_spark(kind.value_type))
    if pa.types.is_struct(kind):
        return spark.StructType([spark.StructField(field.name, _spark(field.type)) for field in kind])
    return simple[kind]


def test_names_of_columns_stand_in_the_ddl_as_they_are() -> None:
    assert schema_to_ddl(pa.schema([("a b", pa.int32()), ("s", pa.struct([("x", pa.string())]))])) == (
        "`a b` int, `s` struct<`x`: string>"
    )


def test_a_type_that_no_table_holds_is_refused_by_column() -> None:
    interval = spark.StructType([spark.StructField("since", spark.YearMonthIntervalType())])
    with pytest.raises(SchemaError, match="'since'"):
        arrow_schema_of(interval)


def test_an_interval_of_days_is_arrows_duration_which_a_table_refuses_as_such() -> None:
    interval = spark.StructType([spark.StructField("since", spark.DayTimeIntervalType())])
    assert arrow_schema_of(interval) == pa.schema([("since", pa.duration("us"))])
