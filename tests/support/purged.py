"""Tables of users that are purged, and what their files still say of a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import hoodoo
from hoodoo.format.names import parse_data_file
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.layout import INDEX

SCHEMA = pa.schema([("user", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("note", pa.string())])
KINDS = ("copy_on_write", "merge_on_read")


def key(number: int) -> str:
    return f"user-{number:05d}@example"


def batch(numbers: list[int], city: str, ts: int) -> pa.Table:
    return pa.table(
        {
            "user": [key(n) for n in numbers],
            "city": [city] * len(numbers),
            "ts": [ts] * len(numbers),
            "note": [f"{ts}"] * len(numbers),
        },
        SCHEMA,
    )


def keys_of(*pairs: tuple[int, str]) -> pa.Table:
    return pa.table({"user": [key(number) for number, _ in pairs], "city": [city for _, city in pairs]})


def make(path: Path, kind: str, **options: Any) -> hoodoo.Table:
    return hoodoo.create(
        path,
        SCHEMA,
        key="user",
        partition_by="city",
        order_by="ts",
        type=kind,
        **{"compact_after_logs": None, "clean_every": None, **options},
    )


def impatient(table: hoodoo.Table) -> hoodoo.Table:
    """The table as a process sees it that waits for nobody."""
    return hoodoo.Table(table.handle.store, Environment(sleep=lambda seconds: None))


def decoded(path: Path) -> bytes:
    """Everything a data file says, values and footer, without compression."""
    if path.suffix != ".parquet":
        return path.read_bytes()  # Avro and delete blocks hold texts as they are
    file = pq.ParquetFile(path)
    footer = b"".join(name + value for name, value in (file.metadata.metadata or {}).items())
    groups = range(file.metadata.num_row_groups)
    bounds = [file.metadata.row_group(g).column(c).statistics for g in groups for c in range(file.metadata.num_columns)]
    named = " ".join(f"{bound.min} {bound.max}" for bound in bounds if bound is not None and bound.has_min_max)
    return footer + named.encode() + str(file.read().to_pylist()).encode()


def files(table: hoodoo.Table, city: str) -> list[Path]:
    """The data files of a partition, old ones too."""
    return [path for path in Path(table.path, f"city={city}").iterdir() if parse_data_file(path.name)]


def where_named(table: hoodoo.Table, number: int, cities: str) -> list[str]:
    """The files of some partitions and of the index that say the key of a row."""
    text = key(number).encode()
    found = [path.name for city in cities for path in files(table, city) if text in decoded(path)]
    return found + [path.name for path in Path(table.path, INDEX).glob("*") if text in path.read_bytes()]


def content(table: hoodoo.Table) -> list[str]:
    """The rows of a table, each as a text, in order."""
    return sorted(map(str, table.scan().to_arrow().to_pylist()))
