"""Apache Hudi finds our tables by a Hive metastore, a real one: by the entries that `register` makes, which are those
that Hudi's own sync makes of the same tables.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import catalog_servers
import hudi_by_metastore
import metastore_reader
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog

import hoodoo

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("Fare", pa.float64()),
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("single", pa.float32()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("ms")),
        ("amount", pa.decimal128(12, 2)),
        ("items", pa.list_(pa.struct([("n", pa.int32()), ("Word", pa.string())]))),
        ("named", pa.map_(pa.string(), pa.int64())),
        ("inner", pa.struct([("x", pa.int64()), ("deep", pa.struct([("y", pa.timestamp("us"))]))])),
        *((f"one_of_many_columns_{number}", pa.string()) for number in range(80)),
    ]
)
"""A column of each type that Spark reads, and so many that Spark's description has several parts."""
TABLES: dict[str, tuple[str, str | list[str] | None]] = {
    "rides": ("copy_on_write", "city"),
    "stops": ("merge_on_read", "city"),
    "trips": ("copy_on_write", ["small", "day"]),
    "plain": ("merge_on_read", None),
}
"""Name -> type, and the columns that it is partitioned by."""
GONE = {"city": ("oslo",), "small": ("1", "2026-01-02")}
"""First partition column -> the partition that is dropped."""
ENTRIES = ["rides", "stops", "stops_ro", "stops_rt", "trips", "plain", "plain_ro", "plain_rt"]
READ = "`id`, `city`, `Fare`, `small`, `day`, unix_micros(`at`) `at`, `amount`, `items`, `named`, `more`"


OF_TWO = "select count(*) n from lake.trips where day = '2026-01-01' and small = 0"


class Asked(NamedTuple):
    """What Hudi answered, by query, and the catalog with our entries and Hudi's."""

    rows: dict[str, list[Any]]
    catalog: Catalog
    folder: Path


def row(number: int, city: str, **more: Any) -> dict[str, Any]:
    return {
        **dict.fromkeys(SCHEMA.names),
        "id": number,
        "city": city,
        "Fare": number / 4,
        "small": number % 2,
        "day": dt.date(2026, 1, 1 + number % 3),
        "at": dt.datetime(2026, 1, 1, 1, 2, 3, number, dt.timezone.utc),
        "amount": Decimal(number) / 4,
        "items": [{"n": number, "Word": "w"}],
        "named": [("k", number)],
        **more,
    }


def changed(table: hoodoo.Table, name: str, catalog: Catalog) -> None:
    """A table with logs, where its type has any; partitions and a column come after it was registered, and one goes."""
    first = pa.Table.from_pylist([row(n, "oslo" if n % 2 else "rome") for n in range(6)], SCHEMA)
    table.upsert(first)
    table.register(f"lake.{name}", catalog=catalog)
    table.alter.add_column("more", pa.string())
    gone = {"small": 1, "day": dt.date(2026, 1, 2)} if name == "trips" else {"city": "oslo"}
    table.upsert(pa.Table.from_pylist([row(n, "bonn") for n in (10, 11)], SCHEMA).append_column("more", [["x", "y"]]))
    table.upsert(pa.Table.from_pylist([row(n, "rome", Fare=99.0, more="z") for n in (0, 2)], table.schema))
    if table.partition_by:
        table.delete_partitions([gone])
    table.register(f"lake.{name}", catalog=catalog)


def ours(asked: Asked, name: str, **how: Any) -> list[str]:
    """The rows of an entry as `scan` has them, in the form of Hudi's answers."""
    table = hoodoo.open(asked.folder / name.removesuffix("_ro").removesuffix("_rt"))
    optimized = name.endswith("_ro")
    names = ["id", "city", "Fare", "small", "day", "at", "amount", "items", "named", "more"]
    found = table.scan(columns=names, read_optimized=optimized, **how).to_arrow()
    at = found["at"].cast(pa.int64())
    found = found.set_column(found.schema.get_field_index("at"), "at", at)
    return rows({**one, "named": dict(one["named"])} for one in found.to_pylist())


def rows(found: Any) -> list[str]:
    return sorted(json.dumps(one, sort_keys=True, default=str) for one in found)


@contextmanager
def answered(tmp_path: Path) -> Iterator[Asked]:
    """Registers the tables, lets Hudi's own sync register them too, once over our entries, and asks Hudi."""
    folder, scratch, server = tmp_path / "lake", tmp_path / "spark", tmp_path / "hive"
    scratch.mkdir()
    server.mkdir()
    with catalog_servers.hive_metastore(server) as uri:
        catalog = load_catalog("hms", type="hive", uri=uri)
        for database in ("lake", "over", "theirs"):
            catalog.create_namespace(database)
        steps: list[dict[str, str]] = []
        for name, (kind, partition_by) in TABLES.items():
            options: dict[str, Any] = {"compact_after_logs": None} if kind == "merge_on_read" else {}
            table = hoodoo.create(
                folder / name, SCHEMA, key="id", partition_by=partition_by, type=kind, clean_every=None, **options
            )
            changed(table, name, catalog)
            table.register(f"over.{name}", catalog=catalog)
            told = {"sync": name, "path": f"file://{folder / name}", "keys": ",".join(table.partition_by)}
            steps += [{**told, "database": "theirs"}, {**told, "database": "over"}]
        queries = [f"select {READ} from lake.{name}" for name in ENTRIES]
        queries += [f"select {READ} from lake.{name} where city = 'bonn'" for name in ("rides", "stops", "stops_ro")]
        queries += [OF_TWO]
        queries += [f"show partitions lake.{name}" for name in ("rides", "stops", "stops_ro", "trips")]
        steps += [{"query": one} for one in queries]
        found = hudi_by_metastore.answers(uri, steps, scratch)
        yield Asked(dict(zip(queries, found[-len(queries) :], strict=True)), catalog, folder)


def same_entry(asked: Asked, name: str) -> None:
    """An entry is the one that Hudi's own sync makes, and Hudi's sync finds nothing to change in it."""
    found, theirs, synced = (metastore_reader.entry(asked.catalog, name, one) for one in ("lake", "theirs", "over"))
    assert found == synced, name
    assert len(found["parts"]) == len(theirs.pop("parts")) > 1, name
    # a first sync of Hudi's lists folders, and that of the dropped partition is there until a clean
    more = {values for values in theirs["partitions"] if values not in found["partitions"]}
    assert more == ({GONE[found["keys"][0][0]]} if found["keys"] else set()), name
    for values in more:
        del theirs["partitions"][values]
    for what, said in theirs.items():
        assert found[what] == said, (name, what)


def same_rows(asked: Asked, name: str) -> None:
    """Hudi reads the rows of an entry by its name, and those of one partition."""
    found = rows(asked.rows[f"select {READ} from lake.{name}"])
    assert found == ours(asked, name) and found, name
    if (query := f"select {READ} from lake.{name} where city = 'bonn'") in asked.rows:
        found = rows(asked.rows[query])
        assert found == ours(asked, name, where="city = 'bonn'") and len(found) == 2, name


def same_partitions(asked: Asked) -> None:
    """Hudi shows the partitions that there are, and reads by several partition columns."""
    for name in ("rides", "stops", "stops_ro"):
        shown = asked.rows[f"show partitions lake.{name}"]
        assert sorted(one["partition"] for one in shown) == ["city=bonn", "city=rome"], name
    trips = hoodoo.open(asked.folder / "trips")
    shown = {one["partition"] for one in asked.rows["show partitions lake.trips"]}
    assert shown == set(trips.inspect.files().to_pydict()["partition"]) and "small=1/day=2026-01-02" not in shown
    count = trips.scan(where="day = '2026-01-01' AND small = 0").count()
    assert asked.rows[OF_TWO] == [{"n": count}] and count


def test_hudi_reads_by_the_entries_that_we_make_which_are_those_that_its_own_sync_makes(tmp_path: Path) -> None:
    """One test: it takes a metastore and a Spark of its own."""
    with answered(tmp_path) as asked:
        for name in ENTRIES:
            same_entry(asked, name)
            same_rows(asked, name)
        same_partitions(asked)
        fares = {
            name: {one["Fare"] for one in asked.rows[f"select {READ} from lake.{name}"]}
            for name in ("stops", "stops_rt", "stops_ro")
        }
        assert 99.0 in fares["stops"] and 99.0 in fares["stops_rt"]
        assert 99.0 not in fares["stops_ro"], "what logs say does not show in base files"
