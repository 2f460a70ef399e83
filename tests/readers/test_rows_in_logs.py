"""Logs that name the rows of their base: what is read by rows is what is read by keys, and less is decoded for it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tiers import sized

import hoodoo
from hoodoo.compactor.compaction import plans
from hoodoo.format.log import block
from hoodoo.format.parquet import base_file
from hoodoo.readers.slices import slices
from hoodoo.timeline.views.view import FileGroup

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.int64()),
        ("v", pa.float64()),
        ("word", pa.string()),
        ("tags", pa.list_(pa.string())),
    ]
)
FILTERS = [None, "v < 300", "id >= 700 AND id < 800", "word = 'w3' OR ts > 8", "v IS NULL"]


def batch(ids: list[int], ts: int, rng: random.Random) -> pa.Table:
    columns = {
        "id": ids,
        "ts": [ts] * len(ids),
        "v": [None if rng.random() < 0.1 else float(rng.randrange(1000)) for _ in ids],
        "word": [f"w{rng.randrange(6)}" for _ in ids],
        "tags": [rng.choice([None, [], ["a", None]]) for _ in ids],
    }
    return pa.table(columns, SCHEMA)


def make(path: Path, log_format: str, order_by: str | tuple[str, ...] | None) -> hoodoo.Table:
    options: dict[str, Any] = {"compact_after_logs": None, "slow_after_logs": None, "row_group_rows": 128}
    table = hoodoo.create(path, SCHEMA, key="id", order_by=order_by, log_format=log_format, **options)
    table.insert(batch(list(range(1000)), 5, random.Random(0)), bulk=True)
    return table


def found(table: hoodoo.Table, where: str | None) -> list[dict[str, Any]]:
    return sorted(table.scan(where=where).to_arrow().to_pylist(), key=lambda row: row["id"])


def by_keys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(slices, "has_row_positions", lambda group: False)


@pytest.mark.both
@pytest.mark.parametrize("log_format", ["avro", "parquet"])
@pytest.mark.parametrize("order_by", ["ts", ("ts", "word"), None], ids=["ts", "ts, word", "None"])
def test_any_history_is_read_by_rows_as_by_keys(
    tmp_path: Path, log_format: str, order_by: str | tuple[str, ...] | None
) -> None:
    for seed in range(sized(2, 12)):
        rng = random.Random(seed)
        table = make(tmp_path / str(seed), log_format, order_by)
        for step in range(8):
            ids = rng.sample(range(1000), rng.choice([3, 40, 300]))
            if rng.random() < 0.25:
                table.delete([{"id": number} for number in ids[:20]])
            elif rng.random() < 0.1:
                table.compact()
            else:
                live = set(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())
                ids = [number for number in ids if number in live]  # what comes back goes into the base
                table.upsert(batch(ids, rng.choice([step + 6, 3]), rng))
        for where in FILTERS:
            mine = found(table, where)
            with pytest.MonkeyPatch.context() as patch:
                by_keys(patch)
                assert mine == found(table, where)
        assert table.verify().problems == []


def opened_columns(patch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Names of the columns that each base and log is asked for."""
    asked: list[tuple[str, ...]] = []
    decode, decode_logs = base_file.read_base_file, block.decode_logs

    def base(source: Any, path: str, schema: pa.Schema, *rest: Any) -> pa.Table:
        asked.append(tuple(schema.names))
        return decode(source, path, schema, *rest)

    def logs(files: Any, columns: Any = None, positions: bool = False) -> Any:
        asked.append(tuple(columns))
        return decode_logs(files, columns, positions)

    patch.setattr(base_file, "read_base_file", base)
    patch.setattr(slices, "decode_logs", logs)
    return asked


def test_one_column_over_logs_is_read_without_a_key_or_an_ordering_value_where_logs_are_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "t", "avro", "ts")
    for ts in (6, 7):
        table.upsert(batch(list(range(0, 1000, ts)), ts, random.Random(ts)))
    with monkeypatch.context() as patch:
        asked = opened_columns(patch)
        table.scan(columns=["v"]).to_arrow()
        assert asked == [("v",), ("v",)]
    table.upsert(batch([1, 2, 3], 4, random.Random(1)))  # late: now ordering values decide
    with monkeypatch.context() as patch:
        asked = opened_columns(patch)
        table.scan(columns=["v"]).to_arrow()
        assert asked == [("v", "ts"), ("v", "ts")]


def group(table: hoodoo.Table) -> FileGroup:
    (one,) = table.handle.history.head().groups()
    return one


def test_a_log_with_a_record_whose_key_is_not_in_the_base_names_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that shares its hash with another is taken for that one and logged; it has no row there."""
    table = make(tmp_path / "t", "avro", "ts")
    table.upsert(batch([1, 2], 6, random.Random(1)))
    assert slices.has_row_positions(group(table))
    index = type(table.handle.index)
    rows = index.rows

    def one_unknown(self: Any, base: Any, keys: Any, hashes: Any) -> Any:
        known = rows(self, base, keys, hashes)
        known[0] = -1
        return known

    monkeypatch.setattr(index, "rows", one_unknown)
    table.upsert(batch([3, 4], 7, random.Random(1)))
    log = group(table).logs[-1].file
    assert not log.order and not slices.has_row_positions(group(table))
    assert set(block.find_base_instants(table.handle.store.get(log.path))) == {""}


def test_a_base_that_lost_rows_makes_older_logs_be_read_by_keys(tmp_path: Path) -> None:
    table = make(tmp_path / "t", "avro", "ts")
    table.delete([{"id": 0}])
    context = table.handle.context()

    plan = plans.commit_compaction_plan(context, plans.plan_groups_with_logs)
    assert plan
    table.upsert(batch([5, 6], 9, random.Random(2)))
    plans.run_compaction_plan(context, plan)
    now = group(table)
    assert now.base and now.logs[0].file.order and now.logs[0].file.order != now.base.file.order
    assert {row["id"]: row["ts"] for row in found(table, "id < 8")} == {1: 5, 2: 5, 3: 5, 4: 5, 5: 9, 6: 9, 7: 5}


def test_rows_over_logs_of_older_columns_are_read_with_and_without_their_keys(tmp_path: Path) -> None:
    """A rewrite of such a slice named the record key twice and ended in a KeyError."""
    table = make(tmp_path / "t", "avro", "ts")
    table.upsert(batch([1, 2], 6, random.Random(1)))
    table.alter.add_column("later", pa.int64())
    assert slices.has_row_positions(group(table))
    assert table.scan(columns=["later"]).to_arrow()["later"].null_count == 1000
    keyed = table.scan(columns=["_hoodie_record_key", "later"], meta=True).to_arrow()
    assert keyed["_hoodie_record_key"].null_count == 0 and len(keyed) == 1000
    table.upsert(batch([2000], 7, random.Random(2)).append_column("later", pa.array([3])))
    assert found(table, "later = 3")[0]["id"] == 2000
