"""DuckDB, polars and pyarrow read lazily: nothing before the query runs, then no more than it needs."""

from __future__ import annotations

import datetime as dt
import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from pyarrow import acero

import hoodoo
from hoodoo.format.log import block
from hoodoo.format.parquet import base_file
from hoodoo.readers.slices import slices

PAYLOAD = [f"c{number}" for number in range(17)]
WIDE = pa.schema(
    [("id", pa.int64()), ("day", pa.string()), ("ts", pa.int64()), *((name, pa.int64()) for name in PAYLOAD)]
)


def wide(ids: range, ts: int = 1) -> pa.Table:
    """Rows of 20 columns: a hundred ids are a day, which is a file group."""
    columns = {"id": list(ids), "day": [f"d{number // 100}" for number in ids], "ts": [ts] * len(ids)}
    return pa.table({**columns, **{name: [number * ts for number in ids] for name in PAYLOAD}}, schema=WIDE)


class Reads:
    """What was opened since `clear`: base files and logs, and columns that were decoded of them."""

    def __init__(self) -> None:
        self.files, self.columns = set[str](), set[str]()

    def clear(self) -> None:
        self.files, self.columns = set(), set()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    found, opened, columns, verified = Reads(), slices.opened, base_file._open_file, slices.read_verified_file
    decode, each = block.decode_logs, block.iter_log

    @contextmanager
    def base(store: Any, file: Any) -> Iterator[Any]:
        found.files.add(file.path)
        with opened(store, file) as source:
            yield source

    def log(store: Any, file: Any, *rest: Any) -> Any:
        found.files.add(file.path)
        return verified(store, file, *rest)

    def asked(source: Any, schema: pa.Schema, *rest: Any) -> Any:
        found.columns.update(schema.names)
        return columns(source, schema, *rest)

    def logs(files: Any, names: Any = None, *rest: Any) -> Any:
        found.columns.update(names)
        return decode(files, names, *rest)

    def one_log(data: Any, columns: Any = None, **rest: Any) -> Any:
        found.columns.update(columns)
        return each(data, columns=columns, **rest)

    monkeypatch.setattr(slices, "opened", base)
    monkeypatch.setattr(slices, "read_verified_file", log)
    monkeypatch.setattr(base_file, "_open_file", asked)
    monkeypatch.setattr(slices, "decode_logs", logs)
    monkeypatch.setattr(slices, "iter_log", one_log)
    return found


@pytest.fixture(scope="module", params=["bases", "logs"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """500 rows of five days, each a file group; with `logs`, two logs over each. Tests have copies of it."""
    path = tmp_path_factory.mktemp("made") / "t"
    table = hoodoo.create(
        path, WIDE, key="id", partition_by="day", order_by="ts", compact_after_logs=None, clean_every=None
    )
    table.upsert(wide(range(500)))
    if request.param == "logs":
        for ts in (2, 3):
            table.upsert(wide(range(ts, 500, 50), ts))
    return path


@pytest.fixture
def table(made: Path, tmp_path: Path) -> hoodoo.Table:
    shutil.copytree(made, tmp_path / "t")
    return hoodoo.open(tmp_path / "t")


def files_of(table: hoodoo.Table, days: set[str]) -> set[str]:
    groups = table.handle.history.head().groups()
    return {
        entry.file.path for group in groups if group.partition.removeprefix("day=") in days for entry in group.files()
    }


def asked_of_duckdb(scan: hoodoo.Scan, condition: str) -> list[int]:
    found = scan.to_duckdb(duckdb.connect()).filter(condition).project("id").fetchall()
    return sorted(number for (number,) in found)


def asked_of_sql(scan: hoodoo.Scan, condition: str) -> list[int]:
    return sorted(number for (number,) in hoodoo.sql(f"SELECT id FROM t WHERE {condition}", t=scan).fetchall())


def asked_of_polars(scan: hoodoo.Scan, condition: str) -> list[int]:
    frame = scan.to_polars(lazy=True)
    assert isinstance(frame, pl.LazyFrame)
    return sorted(frame.filter(pl.sql_expr(condition)).select("id").collect()["id"].to_list())


CONDITIONS: dict[str, tuple[pc.Expression, set[str], list[int]]] = {
    "id = 207": (pc.field("id") == 207, {"d2"}, [207]),
    "day = 'd3' AND id < 303": (
        (pc.field("day") == "d3") & (pc.field("id") < 303),
        {"d3"},
        [300, 301, 302],
    ),
    "id > 97 AND id <= 101": ((pc.field("id") > 97) & (pc.field("id") <= 101), {"d0", "d1"}, [98, 99, 100, 101]),
    "id IN (5, 410)": (pc.field("id").isin([5, 410]), {"d0", "d4"}, [5, 410]),
    "day IN ('d1', 'd9') AND id >= 199": (
        pc.field("day").isin(["d1", "d9"]) & (pc.field("id") >= 199),
        {"d1"},
        [199],
    ),
    "id = 3 OR id = 499": ((pc.field("id") == 3) | (pc.field("id") == 499), {"d0", "d4"}, [3, 499]),
}


def asked_of_dataset(scan: hoodoo.Scan, condition: str) -> list[int]:
    found = scan.to_dataset().to_table(columns=["id"], filter=CONDITIONS[condition][0])
    return sorted(found["id"].to_pylist())


def asked_of_fragments(scan: hoodoo.Scan, condition: str) -> list[int]:
    expression = CONDITIONS[condition][0]
    parts = scan.to_dataset().get_fragments(expression)
    return sorted(number for one in parts for number in one.to_table(filter=expression)["id"].to_pylist())


ENGINES = [asked_of_duckdb, asked_of_sql, asked_of_polars, asked_of_dataset, asked_of_fragments]


# ---- what is opened
@pytest.mark.parametrize("ask", ENGINES)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_query_opens_only_files_that_may_hold_its_rows(
    table: hoodoo.Table, reads: Reads, ask: Callable[[hoodoo.Scan, str], list[int]], condition: str
) -> None:
    _, days, ids = CONDITIONS[condition]
    assert ask(table.scan(), condition) == ids
    bases = {path for path in files_of(table, days) if path.endswith(".parquet")}
    assert bases <= reads.files <= files_of(table, days)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_where_that_is_an_expression_opens_what_the_text_opens(
    table: hoodoo.Table, reads: Reads, condition: str
) -> None:
    expression = CONDITIONS[condition][0]
    by_text = table.scan(where=condition).to_arrow()
    files, columns = reads.files, reads.columns
    reads.clear()
    assert table.scan(where=expression).to_arrow().equals(by_text)
    assert (reads.files, reads.columns) == (files, columns)


def test_the_condition_of_the_scan_and_that_of_the_query_prune_together(table: hoodoo.Table, reads: Reads) -> None:
    found = table.scan(where="id < 200").to_duckdb(duckdb.connect()).filter("id >= 150").count("*").fetchall()
    assert found == [(50,)]
    assert reads.files <= files_of(table, {"d1"})


def test_nothing_is_read_before_a_query_runs(table: hoodoo.Table, reads: Reads, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    scan, connection = table.scan(), duckdb.connect()
    dataset, frame = scan.to_dataset(), scan.to_polars(lazy=True)
    assert isinstance(frame, pl.LazyFrame)
    made = [
        scan.to_duckdb(connection).filter("id = 1").project("c3"),
        hoodoo.sql("SELECT c3 FROM t WHERE id = 1", t=table),
        frame.filter(pl.col("id") == 1).select("c3"),
        dataset.filter(pc.field("id") == 1),
        dataset.scanner(columns=["c3"]),
        scan.batches(),
    ]
    assert made and not reads.files
    assert frame.collect().height == dataset.count_rows() == 500
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "ask",
    [
        lambda scan: scan.to_duckdb(duckdb.connect()).project("c3 + c5").fetchall(),
        lambda scan: hoodoo.sql("SELECT c3, max(c5) FROM t GROUP BY ALL", t=scan).fetchall(),
        lambda scan: scan.to_polars(lazy=True).select(pl.col("c3") + pl.col("c5")).collect(),
        lambda scan: scan.to_dataset().to_table(columns=["c3", "c5"]),
        lambda scan: scan.to_dataset().to_table(columns={"x": pc.field("c3")}, filter=pc.field("c5") > 7),
        lambda scan: scan.to_dataset().head(400, columns=["c3", "c5"]),
    ],
)
def test_of_20_columns_two_are_read_and_what_a_merge_needs(
    table: hoodoo.Table, reads: Reads, ask: Callable[[hoodoo.Scan], Any]
) -> None:
    ask(table.scan())
    assert {"c3", "c5"} <= reads.columns <= {"c3", "c5", "ts", "_hoodie_record_key"}


def test_a_few_rows_are_taken_from_the_first_files_alone(table: hoodoo.Table, reads: Reads) -> None:
    scan = table.scan()
    assert scan.to_dataset().head(5).num_rows == 5
    assert len({path.partition("/")[0] for path in reads.files}) == 1
    reads.clear()
    frame = scan.to_polars(lazy=True)
    assert isinstance(frame, pl.LazyFrame) and frame.head(5).collect().height == 5
    assert len({path.partition("/")[0] for path in reads.files}) == 1


def test_row_groups_that_a_query_does_not_need_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = hoodoo.create(tmp_path / "t", WIDE, key="id", row_group_rows=100)
    table.upsert(wide(range(500)))
    groups, wanted = list[int](), base_file._select_row_groups

    def counted(*arguments: Any) -> list[int]:
        groups.extend(wanted(*arguments))
        return wanted(*arguments)

    monkeypatch.setattr(base_file, "_select_row_groups", counted)
    assert table.scan().to_duckdb(duckdb.connect()).filter("c0 BETWEEN 210 AND 220").count("*").fetchall() == [(11,)]
    assert groups == [2]


def test_columns_that_partitions_are_made_of_prune(tmp_path: Path, reads: Reads) -> None:
    schema = pa.schema([("id", pa.int64()), ("moment", pa.timestamp("us", "UTC"))])
    table = hoodoo.create(tmp_path / "t", schema, key="id", partition_by=hoodoo.day("moment"))
    begin = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
    table.upsert([{"id": number, "moment": begin + dt.timedelta(hours=12 * number)} for number in range(10)])
    condition = "moment >= TIMESTAMPTZ '2026-01-05 00:00:00+00'"
    assert asked_of_duckdb(table.scan(), condition) == [8, 9]
    assert len(reads.files) == 1


def test_columns_by_their_original_names_prune(tmp_path: Path, reads: Reads) -> None:
    rows = pa.table({"Order ID": [1, 2, 3], "Day": ["a", "b", "b"], "The Sum": [1.5, 2.5, 3.5]})
    table = hoodoo.create(tmp_path / "t", rows, key="Order ID", partition_by="Day", rename="snake")
    table.upsert(rows)
    table.upsert(rows.slice(2).set_column(2, "The Sum", pa.array([9.5])))
    scan, reads.files = table.scan(names="original"), set()
    relation = scan.to_duckdb(duckdb.connect())
    assert relation.filter("\"Day\" = 'a'").project('"The Sum"').fetchall() == [(1.5,)]
    frame = scan.to_polars(lazy=True)
    assert isinstance(frame, pl.LazyFrame)
    assert frame.filter(pl.col("Day") == "a").select("The Sum").collect()["The Sum"].to_list() == [1.5]
    assert len(reads.files) == 1
    assert scan.to_dataset().to_table(filter=pc.field("The Sum") > 5)["Order ID"].to_pylist() == [3]


def test_a_condition_within_a_struct_reads_its_column_alone(tmp_path: Path, reads: Reads) -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.struct([("p", pa.int64())])), ("other", pa.string())])
    table = hoodoo.create(tmp_path / "t", schema, key="id")
    table.upsert([{"id": number, "n": {"p": number % 3}, "other": "x"} for number in range(9)])
    relation = table.scan().to_duckdb(duckdb.connect())
    assert sorted(relation.filter("n.p = 1").project("id").fetchall()) == [(1,), (4,), (7,)]
    assert reads.columns == {"id", "n"}
    assert table.scan(where=pc.field("n", "p") == 1).count() == 3


# ---- what is answered
def test_rows_stay_those_of_the_snapshot(table: hoodoo.Table) -> None:
    scan = table.scan()
    relation, frame, dataset = scan.to_duckdb(duckdb.connect()), scan.to_polars(lazy=True), scan.to_dataset()
    assert isinstance(frame, pl.LazyFrame)
    table.upsert(wide(range(500, 600)))
    assert len(relation.fetchall()) == frame.collect().height == dataset.count_rows() == 500


def test_a_snapshot_that_was_cleaned_away_is_an_error_of_the_query(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", WIDE, key="id", type="copy_on_write", clean_every=None)
    table.upsert(wide(range(10)))
    scan = table.scan()
    relation, frame, dataset = scan.to_duckdb(duckdb.connect()), scan.to_polars(lazy=True), scan.to_dataset()
    assert isinstance(frame, pl.LazyFrame)
    for ts in (2, 3, 4):
        table.upsert(wide(range(10), ts))
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    for ask in (dataset.to_table, dataset.head, frame.collect, lambda *_: next(dataset.get_fragments()).to_table()):
        with pytest.raises(hoodoo.SnapshotExpired):
            ask(5) if ask == dataset.head else ask()
    with pytest.raises(duckdb.Error, match="SNAPSHOT_EXPIRED"):
        relation.fetchall()


def test_reads_of_changes_are_lazy_too(table: hoodoo.Table) -> None:
    changes = table.changes("earliest")
    want = changes.to_arrow().num_rows
    frame = changes.to_polars(lazy=True)
    assert isinstance(frame, pl.LazyFrame)
    assert changes.to_duckdb(duckdb.connect()).filter("op = 'i'").count("*").fetchall() == [(want,)]
    assert frame.filter(pl.col("op") == "i").select("op").collect().height == want


def test_a_limit_before_a_condition_counts_rows_that_the_condition_leaves_out(table: hoodoo.Table) -> None:
    frame = table.scan().to_polars(lazy=True)
    assert isinstance(frame, pl.LazyFrame)
    first = frame.head(20).collect()["id"]
    cut = frame.head(20).filter(pl.col("id") == first[-1]).collect()
    assert cut["id"].to_list() == [first[-1]]
    assert frame.head(20).filter(~pl.col("id").is_in(first.implode())).collect().height == 0


# ---- the dataset itself
def test_a_dataset_does_what_one_in_memory_does(table: hoodoo.Table) -> None:
    scan = table.scan(columns=["id", "c1"])
    lazy, memory = scan.to_dataset(), ds.InMemoryDataset(scan.to_arrow())
    some = pc.field("id") < 3

    def ids(dataset: ds.Dataset) -> list[int]:
        found: list[int] = sorted(dataset.to_table()["id"].to_pylist())
        return found

    asked: list[Callable[[ds.Dataset], Any]] = [
        lambda one: ids(one.filter(some)),
        lambda one: ids(one.filter(some).filter(pc.field("id") > 0)),
        lambda one: one.filter(some).count_rows(),
        lambda one: one.count_rows(some),
        lambda one: one.sort_by([("id", "descending")]).to_table()["id"].to_pylist(),
        lambda one: ids(one.join(one.filter(some), "id", right_suffix="_r", join_type="inner")),
        lambda one: ids(memory.join(one.filter(some), "id", right_suffix="_r", join_type="inner")),
        lambda one: one.take(pa.array([0, 499])).num_rows,
        lambda one: one.head(3).num_rows,
        lambda one: one.head(0, columns=["id"]).num_rows,
        lambda one: sum(batch.num_rows for batch in one.to_batches(batch_size=7)),
        lambda one: max(batch.num_rows for batch in one.to_batches(batch_size=7)),
        lambda one: one.to_table(columns=[]).num_rows,
        lambda one: one.scanner(columns={"x": pc.field("id") + 1}, filter=some).to_table().schema,
        lambda one: ids(one.replace_schema(pa.schema([("id", pa.int64())]))),
        lambda one: ids(ds.dataset([one, one])),
        lambda one: sum(part.count_rows() for part in one.get_fragments()),
        lambda one: acero.Declaration("scan", acero.ScanNodeOptions(one)).to_table().num_rows,
        lambda one: one.schema,
    ]
    for number, ask in enumerate(asked):
        assert ask(lazy) == ask(memory), number


def test_a_field_by_number_counts_in_the_columns_of_the_dataset(table: hoodoo.Table) -> None:
    """It counted in those that were read: `id` was compared with what stood in another column."""
    scan = table.scan(columns=["c1", "id", "c2"])
    lazy, memory = scan.to_dataset(), ds.InMemoryDataset(scan.to_arrow())
    for numbered in (pc.field(1) == 7, pc.field(1).isin([1, 2]), ~(pc.field(1) == 7) & (pc.field("c2") > 0)):
        assert lazy.count_rows(filter=numbered) == memory.count_rows(filter=numbered)
        found, expected = (one.to_table(columns=["c2"], filter=numbered) for one in (lazy, memory))
        assert sorted(found["c2"].to_pylist()) == sorted(expected["c2"].to_pylist())


def test_a_column_may_be_asked_for_twice(table: hoodoo.Table) -> None:
    dataset = table.scan().to_dataset()
    assert dataset.to_table(columns=["id", "id"]).column_names == ["id", "id"]
    assert all(batch.num_columns == 2 for batch in dataset.to_batches(columns=["id", "id"]))
    assert dataset.scanner(columns=["id", "id"]).head(2).shape == (2, 2)


def test_a_dataset_refuses_what_does_not_fit_when_it_is_asked(table: hoodoo.Table) -> None:
    dataset = table.scan().to_dataset()
    for wrong in (lambda: dataset.scanner(columns=["nix"]), lambda: dataset.scanner(filter=pc.field("nix") > 1)):
        with pytest.raises(pa.ArrowInvalid, match="nix"):
            wrong()
    with pytest.raises(TypeError, match="no_such_option"):
        dataset.to_table(no_such_option=1)
    with pytest.raises(ValueError, match="Pass the filter"):
        dataset.filter(pc.field("id") > 1).get_fragments()
    with pytest.raises(TypeError, match="cannot be pickled"):
        dataset.__reduce__()


def test_a_dataset_is_written_batch_by_batch(table: hoodoo.Table, tmp_path: Path) -> None:
    ds.write_dataset(table.scan().to_dataset(), tmp_path / "out", format="parquet")
    assert ds.dataset(tmp_path / "out").count_rows() == 500


def test_many_reads_in_one_query_do_not_wait_for_each_other(table: hoodoo.Table) -> None:
    """More of them than Arrow has threads that wait for files."""
    names = [f"t{number}" for number in range(12)]
    joined = " ".join(f"JOIN {name} USING (id)" for name in names[1:])
    found = hoodoo.sql(f"SELECT count(*) FROM t0 {joined}", **dict.fromkeys(names, table.scan(columns=["id"])))
    assert found.fetchall() == [(500,)]
    union = " UNION ALL ".join(f"FROM {name}" for name in names)
    assert hoodoo.sql(union, **dict.fromkeys(names, table)).count("*").fetchall() == [(6000,)]


def test_a_condition_of_duckdb_in_the_scan_runs_within_a_query_of_duckdb(table: hoodoo.Table) -> None:
    scan = table.scan(where="id % 100 = 7 AND day || 'x' = 'd4x'")
    assert asked_of_duckdb(scan, "id > 3") == [407]
    assert list(itertools.chain.from_iterable(hoodoo.sql("SELECT id FROM t", t=scan).fetchall())) == [407]


def test_renamed_and_new_columns_and_deletes_are_seen(tmp_path: Path, reads: Reads) -> None:
    table = hoodoo.create(tmp_path / "t", WIDE, key="id", partition_by="day", order_by="ts", compact_after_logs=None)
    table.upsert(wide(range(300)))
    table.alter.rename_column("c1", "first", rewrite=True)
    table.alter.add_column("late", pa.string())
    table.delete([{"id": 150, "day": "d1"}])
    reads.clear()
    assert asked_of_duckdb(table.scan(), "first BETWEEN 149 AND 151 AND late IS NULL") == [149, 151]
    assert reads.files <= files_of(table, {"d1"})
    assert asked_of_polars(table.scan(), "first = 150 OR late = 'x'") == []


def test_dictionaries_and_large_types_are_compared_as_what_they_hold(tmp_path: Path) -> None:
    texts = pa.array(["a", "b", None]).dictionary_encode()
    rows = pa.table({"id": [1, 2, 3], "s": texts, "l": pa.array(["x", "y", "z"], pa.large_string())})
    table = hoodoo.create(tmp_path / "t", rows.schema, key="id")
    table.upsert(rows)
    assert asked_of_duckdb(table.scan(), "s = 'b'") == asked_of_polars(table.scan(), "l = 'y'") == [2]
    dataset = table.scan().to_dataset()
    for value in (pa.scalar("a"), pa.scalar("a", pa.large_string())):
        assert dataset.to_table(filter=pc.field("s") == value)["id"].to_pylist() == [1]
