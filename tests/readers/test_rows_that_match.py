"""A read with a condition chooses rows by the columns that the condition looks at, row group by row group, before it
decodes the others; an update writes over the positions at which it found them.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hoodoo
from hoodoo.format.parquet import base_file
from hoodoo.readers.predicate.filter import Filter
from hoodoo.readers.slices.slice_task import SliceTask

KINDS = ("merge_on_read", "copy_on_write")
ROWS = 1000
SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("n", pa.int64()), ("s", pa.string())])


def rows(ids: range) -> pa.Table:
    return pa.table([[f"k{i:05}" for i in ids], ["d"] * len(ids), list(ids), [f"s{i % 7}" for i in ids]], schema=SCHEMA)


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> hoodoo.Table:
    """One base file of five row groups, in the order of its keys."""
    table = hoodoo.create(
        tmp_path / "t",
        SCHEMA,
        key="id",
        partition_by="day",
        type=request.param,
        row_group_rows=ROWS // 5,
        compact_after_logs=None,
    )
    table.insert(rows(range(ROWS)), sort_by="id", bulk=True)
    return table


def task(table: hoodoo.Table, where: str, *columns: str) -> SliceTask:
    state = table.handle.timeline.prepare_for_write()
    (group,) = state.view.groups()
    return SliceTask(table.handle.store, state.config, group, columns, Filter.parse(where, state.config.schema), None)


@pytest.mark.parametrize(
    "where",
    [
        "n >= 250 AND n < 650 AND s = 's3'",
        "s = 's3'",
        "n < 0",
        "n >= 0",
        "id > 'k00790'",
        "n % 100 = 7",
        "n % 100 = 7 AND n > 500 AND id < 'k00800'",
        "day = 'd' AND n = 999",
    ],
)
def test_rows_are_found_with_their_positions_in_the_file(table: hoodoo.Table, tmp_path: Path, where: str) -> None:
    read = task(table, where, "_hoodie_record_key", "id", "n", "s")
    found, at = read.located()
    (group,) = table.handle.history.head().groups()
    assert group.base is not None and at is not None
    stored = pq.ParquetFile(tmp_path / "t" / group.base.file.path).read()
    assert found["id"].to_pylist() == found["_hoodie_record_key"].to_pylist() == stored["id"].take(at).to_pylist()
    assert sorted(found["n"].to_pylist()) == [n for n in range(ROWS) if _matches(where, n)]
    assert read() == found


def _matches(where: str, n: int) -> bool:
    text = where.replace(" AND ", " and ").replace(" = ", " == ")
    return bool(eval(text, {"n": n, "s": f"s{n % 7}", "id": f"k{n:05}", "day": "d"}))


def test_columns_that_the_condition_does_not_look_at_are_decoded_where_a_row_matches(
    table: hoodoo.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[tuple[int, tuple[str, ...]]] = []
    decode = base_file.RowGroupReader.decode

    def seen(self: base_file.RowGroupReader, group: int, columns: list[str]) -> pa.Table:
        decoded.append((group, tuple(columns)))
        return decode(self, group, columns)

    monkeypatch.setattr(base_file.RowGroupReader, "decode", seen)
    assert table.scan(where="n % 1000 = 450", columns=["s"]).to_arrow().to_pylist() == [{"s": "s2"}]
    assert decoded == [(0, ("n",)), (1, ("n",)), (2, ("n",)), (2, ("s",)), (3, ("n",)), (4, ("n",))]


def test_a_condition_on_a_column_that_the_file_lacks_sees_nulls_or_its_default(table: hoodoo.Table) -> None:
    table.alter.add_column("late", pa.int64())
    assert table.scan(where="late is null").count() == ROWS
    assert table.scan(where="late is not null or n = 5").to_arrow()["n"].to_pylist() == [5]
    assert table.update({"late": "n"}, where="late is null AND n < 3").updated == 3
    assert sorted(table.scan(where="late >= 0").to_arrow()["late"].to_pylist()) == [0, 1, 2]


def test_updates_and_deletes_write_over_the_rows_that_they_found(table: hoodoo.Table) -> None:
    want = {n: f"s{n % 7}" for n in range(ROWS)}
    for turn, where in enumerate(("n % 10 = 3", "n >= 190 AND n <= 210", "s = 's1'")):
        chosen = [n for n in want if _matches(where, n) and (turn < 2 or want[n] == "s1")]
        assert table.update({"s": f"'t{turn}'"}, where=where).updated == len(chosen)
        want |= {n: f"t{turn}" for n in chosen}
    assert table.delete(where="n % 50 = 0").deleted == 20
    want = {n: s for n, s in want.items() if n % 50}
    for _ in range(2):
        assert {row["n"]: row["s"] for row in table.scan().to_arrow().to_pylist()} == want
        assert table.verify().problems == []
        table.compact()


def test_a_constant_is_evaluated_once(table: hoodoo.Table) -> None:
    assert table.update({"s": "upper('late')", "n": "NULL"}, where="n < 2").updated == 2
    assert table.scan(where="s = 'LATE'").to_arrow()["n"].to_pylist() == [None, None]
