"""Columns that Apache Hudi changed, by names or with its internal schema: hoodoo reads what Hudi reads, at every
instant, before and after it adopts the table.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import golden_tables as golden
import pyarrow as pa
import pytest
from hudi_rows import hudi_rows

import hoodoo
from hoodoo.cli.main import main
from hoodoo.format.avro.schema import create_avro_schema
from hoodoo.format.names import instant_of_ms, ms_of_instant
from hoodoo.format.timeline import avro

BY_NAMES = [name for name in golden.CHANGED_COLUMNS if name.endswith("by_names")]
BY_IDS = [name for name in golden.CHANGED_COLUMNS if name.endswith("by_ids")]


def plain(value: Any) -> Any:
    """Maps come from Arrow as pairs."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {name: plain(part) for name, part in value}
    return [plain(part) for part in value] if isinstance(value, list) else value


def rows_of(scan: hoodoo.Scan) -> list[dict[str, Any]]:
    return golden.sorted_rows([plain(row) for row in scan.to_arrow().to_pylist()])


def own(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return golden.sorted_rows(
        [{name: value for name, value in row.items() if not name.startswith("_hoodie_")} for row in rows]
    )


def require_all(table: hoodoo.Table, facts: dict[str, Any]) -> None:
    """The rows and columns at every instant are those that Hudi read."""
    assert rows_of(table.scan()) == own(facts["snapshot"])
    for instant in facts["instants"]:
        scan = table.scan(as_of=instant["instant"])
        assert rows_of(scan) == own(instant["rows"])
        assert sorted(table.inspect.schema_at(instant["instant"]).names) == sorted(instant["columns"])


@pytest.mark.parametrize("name", golden.CHANGED_COLUMNS)
def test_a_table_whose_columns_hudi_changed_reads_at_every_instant_as_hudi_reads_it(tmp_path: Path, name: str) -> None:
    require_all(hoodoo.open(golden.unpack(name, tmp_path)), golden.facts(name))


def a_newer_row(table: hoodoo.Table) -> pa.Table:
    rows = table.scan().to_arrow()
    [row] = [n for n, key in enumerate(rows["id"].to_pylist()) if key == "k3"]
    batch = rows.slice(row, 1)
    return batch.set_column(batch.schema.get_field_index("ts"), "ts", pa.array([99], pa.int64()))


@pytest.mark.parametrize("name", BY_NAMES)
def test_a_table_changed_by_names_is_written_on_without_a_rewrite(tmp_path: Path, name: str) -> None:
    table, facts = hoodoo.open(golden.unpack(name, tmp_path)), golden.facts(name)
    changes = [version.changes for version in table.inspect.schemas()]
    table.upsert(a_newer_row(table))
    table = hoodoo.open(tmp_path / name)
    assert [version.changes for version in table.inspect.schemas()] == changes
    for instant in facts["instants"]:
        assert rows_of(table.scan(as_of=instant["instant"])) == own(instant["rows"])
    expected = [row | ({"ts": 99} if row["id"] == "k3" else {}) for row in own(facts["snapshot"])]
    assert rows_of(table.scan()) == golden.sorted_rows(expected)
    assert table.verify().problems == []


@pytest.mark.parametrize("name", BY_NAMES)
def test_a_column_that_comes_back_has_its_id_and_its_old_values(tmp_path: Path, name: str) -> None:
    table = hoodoo.open(golden.unpack(name, tmp_path))
    born, *_, now = table.inspect.schemas()
    dropped = next(version for version in table.inspect.schemas() if version.changes == ("drop a",))
    assert "a" not in dropped.ids and now.ids["a"] == born.ids["a"]
    values = {row["id"]: row["a"] for row in rows_of(table.scan())}
    assert values == {"k1": "11", "k2": str(2**40), "k3": "3", "k4": "four", "k5": "5"}


@pytest.mark.parametrize("name", BY_IDS)
def test_the_first_write_to_a_table_with_an_internal_schema_asks_for_a_rewrite_after_which_all_agree(
    tmp_path: Path, name: str
) -> None:
    """A commit of ours carries no internal schema, and without one in the newest commit Hudi's readers, flagged or not,
    go by names: old files would show null under a new name, and Spark's next upsert would write those nulls down.
    """
    table, facts = hoodoo.open(golden.unpack(name, tmp_path)), golden.facts(name)
    batch = a_newer_row(table)
    head = rows_of(table.scan())
    for write in (
        lambda: table.upsert(batch),
        lambda: table.delete(batch),
        lambda: table.alter.add_column("x", pa.int32()),
    ):
        with pytest.raises(hoodoo.RewriteNeeded, match="rewrite=True") as refused:
            write()
        assert refused.value.details["groups"] > 0
    require_all(hoodoo.open(tmp_path / name), facts)
    done = hoodoo.open(tmp_path / name).alter([], rewrite=True)
    assert done.groups == refused.value.details["groups"]
    table = hoodoo.open(tmp_path / name)
    require_all(table, facts)
    assert rows_of(table.scan()) == head
    theirs = {row["id"]: (row["bb"], row["a"]) for row in hudi_rows(tmp_path / name)}
    assert theirs == {row["id"]: (row["bb"], row["a"]) for row in head}
    assert table.incremental(since=done.cursor).to_arrow().num_rows == 0
    table.upsert(batch)
    assert table.alter([], rewrite=True).instant == ""
    assert table.verify().problems == []


@pytest.mark.parametrize("name", BY_IDS)
def test_a_table_with_an_internal_schema_that_no_old_file_needs_is_written_to_as_it_is(
    tmp_path: Path, name: str
) -> None:
    table = hoodoo.open(golden.unpack(name, tmp_path))
    table.alter([], rewrite=True)
    before = rows_of(table.scan())
    table.insert_overwrite(table.scan().to_arrow())
    assert rows_of(hoodoo.open(tmp_path / name).scan()) == before


@pytest.mark.parametrize("name", golden.CHANGED_COLUMNS)
def test_positions_and_ids_are_the_same_before_and_after_adoption(tmp_path: Path, name: str) -> None:
    path = golden.unpack(name, tmp_path)
    shutil.copytree(path, tmp_path / "unadopted")
    table = hoodoo.open(path)
    before = [(version.cursor.seq, version.ids) for version in table.inspect.schemas()]
    table.alter([], rewrite=True) if name in BY_IDS else table.upsert(a_newer_row(table))
    after = [(version.cursor.seq, version.ids) for version in hoodoo.open(path).inspect.schemas()]
    assert after[: len(before)] == before


@pytest.mark.deep  # reads in process and of the package are compared in the quick tier
@pytest.mark.parametrize("name", golden.CHANGED_COLUMNS)
def test_spark_reads_a_table_whose_columns_hudi_changed_through_hoodoo_at_every_instant(
    tmp_path: Path, spark: Any, name: str
) -> None:
    table, facts = hoodoo.open(golden.unpack(name, tmp_path)), golden.facts(name)
    for instant in facts["instants"]:
        rows = [row.asDict(recursive=True) for row in table.scan(as_of=instant["instant"]).to_spark(spark).collect()]
        assert golden.sorted_rows(rows) == own(instant["rows"])


def test_the_command_line_mends_a_table_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = golden.unpack(BY_IDS[0], tmp_path)
    before = rows_of(hoodoo.open(path).scan())
    assert main(["alter", str(path), "rewrite"]) == 0
    assert "altered" in capsys.readouterr().out
    assert main(["alter", str(path), "rewrite"]) == 0
    assert "nothing to change" in capsys.readouterr().out
    assert rows_of(hoodoo.open(path).scan()) == before


def test_a_type_that_another_engine_widened_stands_in_no_change_of_ours(tmp_path: Path) -> None:
    """Spark reads an old float under a double by its own text, and refuses old files of a struct whose field it
    widened; that was so before. A free change asked for a rewrite of them all; `alter([], rewrite=True)` mends them
    where it is asked to.
    """
    schema = pa.schema([("id", pa.string()), ("f", pa.float32())])
    table = hoodoo.create(tmp_path / "t", schema, key="id")
    table.upsert(pa.table({"id": ["k1"], "f": [0.1]}, schema=schema))
    now = pa.schema([("id", pa.string()), ("f", pa.float64())])
    [instant] = [name for name in (tmp_path / "t/.hoodie/timeline").iterdir() if name.suffix == ".deltacommit"][-1:]
    record = avro.decode_timeline_file(instant.read_bytes())
    record["extraMetadata"]["schema"] = json.dumps(create_avro_schema("t", now, meta=False))
    record |= {"operationType": "ALTER_SCHEMA", "partitionToWriteStats": {}}
    _, completed = instant.stem.split("_")
    theirs = instant_of_ms(ms_of_instant(completed) + 1_000)
    folder = instant.parent
    (folder / f"{theirs}.deltacommit.requested").write_bytes(b"")
    (folder / f"{theirs}.deltacommit.inflight").write_bytes(b"")
    until = instant_of_ms(ms_of_instant(theirs) + 1)
    (folder / f"{theirs}_{until}.deltacommit").write_bytes(avro.encode_timeline_file("HoodieCommitMetadata", record))
    table = hoodoo.open(tmp_path / "t")
    assert table.schema.field("f").type == pa.float64()
    assert table.scan().to_arrow()["f"].to_pylist() == [0.1]
    assert table.alter.add_column("n", pa.int32(), default=None).groups == 0
    assert table.alter([], rewrite=True).groups == 1
    assert table.alter([], rewrite=True).instant == ""
    table.upsert(pa.table({"id": ["k2"], "f": [0.2], "m": [1]}), evolve=True)
    assert sorted(table.scan().to_arrow()["f"].to_pylist()) == [0.1, 0.2]
