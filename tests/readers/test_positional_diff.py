"""Change data by places: what two files say of which rows were rewritten is what their snapshots say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import hoodoo
from hoodoo.format.parquet import base_file
from hoodoo.readers.changes import row_diff
from hoodoo.writers.files import in_place

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("n", pa.int64()), ("tags", pa.list_(pa.string()))])
Rows = dict[str, dict[str, Any]]


@pytest.fixture(autouse=True)
def _small_files_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_place, "_SMALL", 0)


@pytest.fixture
def by_places(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Grows with each comparison of two files: could it go by places?"""
    found, compare = list[bool](), row_diff.find_changed_rows

    def note(*arguments: Any) -> Any:
        sides = compare(*arguments)
        found.append(sides is not None)
        return sides

    monkeypatch.setattr(row_diff, "find_changed_rows", note)
    yield found


def make(path: Path) -> hoodoo.Table:
    return hoodoo.create(
        path, SCHEMA, key="id", order_by="ts", type="copy_on_write", row_group_rows=100, clean_every=None
    )


def batch(numbers: np.ndarray, ts: int, rng: np.random.Generator) -> pa.Table:
    rows = [
        {"id": f"k{n:04}", "ts": ts, "n": int(rng.integers(0, 3)), "tags": ["a", None][: int(n) % 3]} for n in numbers
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def snapshot(table: hoodoo.Table) -> Rows:
    return {row["id"]: row for row in table.scan().to_arrow().to_pylist()}


def difference(before: Rows, after: Rows) -> dict[str, tuple[str, Any, Any]]:
    found = {}
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old != new:
            found[key] = ("i" if old is None else "d" if new is None else "u", old, new)
    return found


def told(changes: Any) -> dict[str, tuple[str, Any, Any]]:
    rows = changes.to_arrow().to_pylist()
    found = {(row["after"] or row["before"])["id"]: (row["op"], row["before"], row["after"]) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_changes_of_any_range_are_the_difference_of_the_snapshots(
    tmp_path: Path, seed: int, by_places: list[bool]
) -> None:
    rng, table = np.random.default_rng(seed), make(tmp_path / "t")
    table.upsert(batch(np.arange(450), 0, rng))
    states = [(table.cursor, snapshot(table))]
    for turn in range(1, 9):
        numbers = np.unique(rng.integers(0, 450 + 20 * turn, rng.integers(1, 40)))
        if turn % 4 == 0:
            table.delete(pa.table({"id": [f"k{n:04}" for n in numbers.tolist()]}))
        else:
            table.upsert(batch(numbers, turn, rng))
        states.append((table.cursor, snapshot(table)))
    matching = "n = 1 and ts > 0"
    for since, before in states[:-1]:
        assert told(table.changes(since=since)) == difference(before, states[-1][1])
        kept = [{k: r for k, r in one.items() if r["n"] == 1 and r["ts"] > 0} for one in (before, states[-1][1])]
        assert told(table.changes(since=since, where=matching)) == difference(*kept)
    for (since, before), (until, after) in zip(states[:-1], states[1:], strict=True):
        assert told(table.changes(since=since, until=until)) == difference(before, after)
        assert told(table.changes(until, since, versions="diff")) == difference(after, before)
    assert set(by_places) == {True, False}, "rows were also deleted"


def test_of_untouched_row_groups_and_columns_only_one_side_is_decoded_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, table = np.random.default_rng(1), make(tmp_path / "t")
    rows = batch(np.arange(400), 0, rng)
    table.upsert(rows)
    since = table.cursor
    place = rows.schema.get_field_index("ts")
    table.upsert(rows.slice(150, 5).set_column(place, "ts", pa.array([7] * 5)))
    decoded: list[tuple[int, tuple[str, ...]]] = []
    decode = base_file.RowGroupReader.decode

    def note(self: Any, group: int, columns: Any = None) -> pa.Table:
        found = decode(self, group, columns)
        decoded.append((group, tuple(found.schema.names)))
        return found

    monkeypatch.setattr(base_file.RowGroupReader, "decode", note)
    assert len(told(table.changes(since=since))) == 5
    whole, other = decoded
    assert (whole[0], other[0]) == (1, 1)
    assert set(whole[1]) - set(other[1]) == {"_hoodie_record_key", "id", "n", "tags"}


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    rng, table = np.random.default_rng(1), make(tmp_path / "t")
    table.upsert(batch(np.arange(400), 0, rng))
    since = table.cursor
    table.upsert(batch(np.arange(10, 15), 1, rng))
    (group,) = table.handle.timeline.history.head().groups()
    assert group.base
    path = Path(table.path, group.base.file.path)
    data = path.read_bytes()
    path.write_bytes(data[:2000] + bytes(200) + data[2200:])
    with pytest.raises(hoodoo.CorruptTable, match=group.base.file.path):
        table.changes(since=since).to_arrow()
    path.unlink()
    with pytest.raises(hoodoo.CorruptTable, match=group.base.file.path):
        table.changes(since=since).to_arrow()
