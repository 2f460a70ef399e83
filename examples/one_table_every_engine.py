"""Write a table once, and read it with every installed engine, without a copy of a row.

pyarrow, pandas, polars, DuckDB and Spark read through hoodoo. deltalake, polars' Delta reader and pyiceberg read the
metadata that `export` wrote. The `hudi` package reads the folder as it is.

    python one_table_every_engine.py FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

import hoodoo

Totals = dict[str, float]
"""The sum of the fares of each city."""
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())])


def write(folder: str) -> hoodoo.Table:
    """A table of trips, some of which were changed, with metadata for readers of Delta and of Iceberg."""
    table = hoodoo.create(
        Path(folder) / "trips", SCHEMA, key="id", partition_by="city", order_by="ts", type="copy_on_write"
    )
    cities = ("oslo", "rome", "lima")
    table.upsert([{"id": f"{n}", "city": cities[n % 3], "ts": 1, "fare": n / 4} for n in range(3000)])
    table.upsert([{"id": f"{n}", "city": cities[n % 3], "ts": 2, "fare": 0.5} for n in range(0, 3000, 10)])
    table.delete(where="fare > 700")
    table.export(delta=True, iceberg=True)
    return table


def of_pairs(pairs: Iterable[Any]) -> Totals:
    """Totals of pairs of city and sum."""
    return {str(city): float(total) for city, total in pairs}


def of_arrow(rows: pa.Table) -> Totals:
    """Totals of rows of Arrow."""
    found = rows.group_by("city").aggregate([("fare", "sum")])
    return of_pairs(zip(found["city"].to_pylist(), found["fare_sum"].to_pylist(), strict=True))


# ---- through hoodoo
def by_pyarrow(table: hoodoo.Table) -> Totals:
    """A Dataset, which reads the columns that are asked for."""
    return of_arrow(table.scan().to_dataset().to_table(columns=["city", "fare"]))


def by_pandas(table: hoodoo.Table) -> Totals:
    """A DataFrame."""
    return of_pairs(table.scan(columns=["city", "fare"]).to_pandas().groupby("city")["fare"].sum().items())


def by_polars(table: hoodoo.Table) -> Totals:
    """A lazy frame, which reads when it is collected."""
    import polars as pl

    return of_pairs(table.scan().to_polars(lazy=True).group_by("city").agg(pl.sum("fare")).collect().iter_rows())


def by_duckdb(table: hoodoo.Table) -> Totals:
    """A query, which reads when its rows are fetched."""
    return of_pairs(hoodoo.sql("SELECT city, sum(fare) FROM trips GROUP BY city", trips=table).fetchall())


def by_spark(table: hoodoo.Table) -> Totals:
    """A DataFrame of the session that runs, or of a new one."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    return of_pairs(table.scan().to_spark(spark).groupBy("city").sum("fare").collect())


# ---- by the metadata beside the table
def by_deltalake(table: hoodoo.Table) -> Totals:
    """The newest version of the Delta log."""
    from deltalake import DeltaTable

    return of_arrow(DeltaTable(table.path).to_pyarrow_table(columns=["city", "fare"]))


def by_polars_delta(table: hoodoo.Table) -> Totals:
    """The same, by the reader of polars."""
    import polars as pl

    return of_pairs(pl.scan_delta(table.path).group_by("city").agg(pl.sum("fare")).collect().iter_rows())


def by_pyiceberg(table: hoodoo.Table) -> Totals:
    """The newest Iceberg snapshot; `export` says which file tells of it."""
    from pyiceberg.table import StaticTable

    newest = table.export(iceberg=True).iceberg
    assert newest is not None
    return of_arrow(StaticTable.from_metadata(f"{table.path}/{newest.metadata}").scan().to_arrow())


# ---- as a table of Apache Hudi
def by_hudi(table: hoodoo.Table) -> Totals:
    """The folder as it is."""
    from hudi import HudiTableBuilder

    return of_arrow(pa.Table.from_batches(HudiTableBuilder.from_base_uri(table.path).build().read()))


ENGINES: dict[str, Callable[[hoodoo.Table], Totals]] = {
    "pyarrow": by_pyarrow,
    "pandas": by_pandas,
    "polars": by_polars,
    "DuckDB": by_duckdb,
    "Spark": by_spark,
    "deltalake": by_deltalake,
    "polars, Delta": by_polars_delta,
    "pyiceberg": by_pyiceberg,
    "hudi": by_hudi,
}


def main(folder: str) -> list[str]:
    """Write the table, let every engine read it, and return the names of those that are installed."""
    table = write(folder)
    expected, found = of_arrow(table.scan().to_arrow()), []
    for name, totals in ENGINES.items():
        try:
            answer = totals(table)
        except ImportError as missing:
            print(f"{name:<14} is not installed: {missing}")
            continue
        assert answer == expected, (name, answer, expected)
        print(f"{name:<14} {answer}")
        found.append(name)
    return found


if __name__ == "__main__":
    main(sys.argv[1])
