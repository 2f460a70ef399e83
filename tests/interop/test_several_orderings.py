"""Tables with two ordering columns, written by Apache Hudi and by hoodoo in turn: both see the rows of a dict, in which
a version wins that is not below the stored one, compared column by column.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import hudi_session
import pyarrow as pa
import pytest

import hoodoo
from hoodoo.format.log.block import DeleteBlock, decode_log
from hoodoo.format.names import IS_DELETED

Read = Callable[..., list[dict[str, Any]]]
Write = Callable[..., None]
DDL = "id string, city string, ts bigint, seq {}, v string"
SECOND: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "bigint": (pa.int64(), lambda n: n),
    "int": (pa.int32(), lambda n: n),
    "string": (pa.string(), lambda n: f"s{n}"),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        lambda n: dt.datetime(2024, 5, 1, tzinfo=dt.timezone.utc) + dt.timedelta(seconds=n),
    ),
    "double": (pa.float64(), lambda n: n / 2),
}
kinds = pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])


class Version(NamedTuple):
    """A version of a key; gone: it is a delete by marker."""

    id: str
    ts: int
    seq: int
    v: str
    gone: bool = False


FIRST = [Version(f"k{n}", 10, 5, "first") for n in range(12)]
CHANGES = [
    Version("k0", 10, 4, "late by the second column"),
    Version("k1", 10, 5, "equal: the later row"),
    Version("k2", 10, 6, "newer by the second column"),
    Version("k3", 9, 99, "late by the first column"),
    Version("k4", 11, 0, "newer by the first column"),
    Version("k5", 10, 4, "", gone=True),
    Version("k6", 10, 5, "", gone=True),
    Version("k7", 10, 6, "", gone=True),
    Version("k8", 9, 99, "", gone=True),
    Version("k9", 11, 0, "", gone=True),
    Version("k10", 0, 0, "", gone=True),
]


COMPACTING = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}


class History:
    """A table and the dict of what it should hold."""

    def __init__(self, path: Path, second: str, read: Read, write: Write) -> None:
        self.path, self.second, self._read, self._write = path, second, read, write
        self.type, self.value = SECOND[second]
        self.rows: dict[str, Version] = {}
        self.rng = random.Random(second)

    def note(self, versions: list[Version]) -> None:
        for one in versions:
            old = self.rows.get(one.id)
            if old is None or (one.ts, one.seq) >= (old.ts, old.seq):
                self.rows.pop(one.id, None)
                if not one.gone:
                    self.rows[one.id] = one

    def some(self, keys: Iterable[str], v: str, gone: bool = False) -> list[Version]:
        """Versions of `keys` around those that are stored; gone: some are deletes by marker."""
        found, rng = [], self.rng
        for key in keys:
            ts, seq = (self.rows[key].ts, self.rows[key].seq) if key in self.rows else (10, 5)
            chosen = rng.choice((ts - 1, ts, ts, ts + 1)), max(0, seq + rng.choice((-1, 0, 1)))
            found.append(Version(key, *chosen, v, gone and rng.random() < 0.4))
        return found

    # ---- writing
    def ours(self, versions: list[Version]) -> None:
        flags = [IS_DELETED] if any(one.gone for one in versions) else []
        rows = [self._row(one) | dict.fromkeys(flags, one.gone) for one in versions]
        table = hoodoo.open(self.path)
        table.upsert(pa.Table.from_pylist(rows, schema=self.schema(*flags)), missing="null")
        self.note(versions)

    def theirs(self, versions: list[Version], flagged: bool = True, **options: str) -> None:
        rows = [tuple(self._row(one).values()) + ((one.gone,) if flagged else ()) for one in versions]
        ddl = f"{DDL.format(self.second)}{f', {IS_DELETED} boolean' if flagged else ''}"
        self._write(self.path, rows, ddl, "upsert", hudi_session.NO_METADATA_TABLE | options)
        self.note(versions)

    def schema(self, *flags: str) -> pa.Schema:
        columns = [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("seq", self.type)]
        return pa.schema([*columns, ("v", pa.string()), *((name, pa.bool_()) for name in flags)])

    def _row(self, one: Version) -> dict[str, Any]:
        return {"id": one.id, "city": "sf", "ts": one.ts, "seq": self.value(one.seq), "v": one.v}

    # ---- what must hold
    def check(self, adopted: bool = True) -> None:
        table, names = hoodoo.open(self.path), self.schema().names
        want = sorted(tuple(self._row(one).values()) for one in self.rows.values())
        rows = table.scan(columns=names).to_arrow().to_pylist()
        assert sorted(tuple(row[name] for name in names) for row in rows) == want
        assert sorted(tuple(_zoned(row[name]) for name in names) for row in self._read(self.path)) == want
        if adopted:
            assert table.verify().problems == []

    def values_of_deletes(self) -> list[int]:
        """Of each block of ordered deletes, how many ordering values its deletes have."""
        logs = [path for path in self.path.rglob(".*.log.*") if not path.name.endswith(".crc")]
        found = [block for path in logs for block in decode_log(path.read_bytes())]
        return [len(block.ordering) for block in found if isinstance(block, DeleteBlock)]


def _zoned(value: Any) -> Any:
    return value.replace(tzinfo=dt.timezone.utc) if isinstance(value, dt.datetime) else value


@pytest.fixture(params=SECOND)
def history(request: pytest.FixtureRequest, tmp_path: Path, hudi_rows: Read, hudi_write: Write) -> History:
    return History(tmp_path / "t", request.param, hudi_rows, hudi_write)


@kinds
def test_a_table_of_hudis_is_read_and_written_on(history: History, kind: str) -> None:
    ordered = hudi_session.creating(kind, **{"hoodie.table.ordering.fields": "ts,seq"})
    history.theirs(FIRST, flagged=False, **ordered)
    assert hoodoo.open(history.path).order_by == ("ts", "seq")
    history.check(adopted=False)
    history.theirs(CHANGES)
    assert kind == "copy_on_write" or history.values_of_deletes() == [2]
    history.check(adopted=False)
    history.ours(history.some(["k0", "k1", "k2", "k5", "k7", "k9", "k20"], "ours"))
    history.check()
    for compacting in ({}, COMPACTING if kind == "merge_on_read" else {}):
        history.theirs(history.some(list(history.rows)[::2], "theirs", gone=True), **compacting)
        history.check(adopted=False)
        history.ours(history.some([f"k{n}" for n in range(0, 12, 2)], "ours again"))
        history.check()


@kinds
def test_a_table_of_hoodoos_is_read_written_on_and_compacted_by_hudi(history: History, kind: str) -> None:
    table = hoodoo.create(
        history.path,
        history.schema(),
        key="id",
        partition_by="city",
        order_by=("ts", "seq"),
        type=kind,
        compact_after_logs=None,
    )
    history.ours(FIRST)
    history.check()
    history.ours(CHANGES)
    logs = kind == "merge_on_read" and history.second != "double"  # no log takes a delete by a double
    assert history.values_of_deletes() == ([2] if logs else [])
    history.check()
    history.theirs(history.some(["k0", "k1", "k2", "k3", "k4", "k11", "k30"], "theirs"), flagged=False)
    history.check(adopted=False)
    history.ours(history.some([f"k{n}" for n in range(12)], "ours", gone=True))
    history.check()
    compacting = COMPACTING if kind == "merge_on_read" else {}
    history.theirs(history.some(history.rows, "compacted"), flagged=False, **compacting)
    history.check(adopted=False)
    history.ours(history.some([f"k{n}" for n in range(12)], "ours again", gone=True))
    history.check()
    table.compact()
    history.check()
