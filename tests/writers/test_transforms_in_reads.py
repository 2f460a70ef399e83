"""What conditions on the source of a transform open, and what they find."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi_rows import hudi_rows
from transformed import KINDS, QUIET, SCHEMA, UTC, at, batch, row

import hoodoo
from hoodoo.format.transforms import value
from hoodoo.readers.predicate.filter import Filter
from hoodoo.readers.pruning import FilePruning


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by=hoodoo.day("ts"), type=request.param, **QUIET)


# ---------------------------------------------------------------- reads

CONDITIONS = (
    "ts >= '2026-03-02' AND ts < '2026-03-03'",
    "ts = '2026-03-02 05:00:00'",
    "ts < '2026-03-02'",
    "ts <= '2026-03-02'",
    "ts > '2026-03-30'",
    "ts IN ('2026-03-02 05:00:00', '2026-04-09 00:00:00')",
    "NOT ts >= '2026-03-02'",
    "ts != '2026-03-02 05:00:00'",
    "ts IS NULL",
    "ts IS NOT NULL AND ts < '2026-03-02'",
    "id = 7",
    "id IN (7, 8)",
    "id != 7",
    "NOT id = 7",
    "NOT (id IN (7, 8) OR ts > '2026-03-03')",
    "id = 7 OR ts = '2026-03-02 05:00:00'",
    "zip = '12345'",
    "zip LIKE '12%'",
    "zip >= '2' AND zip < '3'",
    "zip = ''",
    "zip IS NULL",
    "v < 3",
)


def ways(count: int) -> list[list[Any]]:
    """Some ways of partitioning by transforms."""
    known = [
        [hoodoo.day("ts")],
        [hoodoo.month("ts"), hoodoo.bucket(3, "id")],
        [hoodoo.year("ts"), hoodoo.truncate(2, "zip")],
        [hoodoo.hour("ts")],
        [hoodoo.truncate(10, "id"), hoodoo.truncate(1, "zip")],
        [hoodoo.bucket(4, "zip"), hoodoo.bucket(2, "ts"), "v"],
    ]
    return known[:count]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", ways(6), ids=lambda by: "-".join(map(str, by)))
def test_a_table_is_a_dict_of_its_partitions_and_keys_whatever_is_written_and_asked(
    tmp_path: Path, kind: str, by: list[Any]
) -> None:
    draw = random.Random(f"{kind}{by}")
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by=by, type=kind, **QUIET)
    model: dict[Any, dict[str, Any]] = {}

    def drawn() -> dict[str, Any]:
        ts = draw.choice([at(draw.randint(1, 9), draw.choice([0, 5, 23]), draw.choice([3, 3, 4])), None])
        return row(draw.randint(0, 40), ts, draw.choice(["12345", "1", "", "29999", "345", None]), draw.randint(0, 5))

    def place(one: dict[str, Any]) -> Any:
        made = [one[t] if isinstance(t, str) else value(t, one[t.column], SCHEMA.field(t.column).type) for t in by]
        return (one["id"], *(None if part == "" else part for part in made))

    for step in range(12):
        rows = list({place(one): one for one in (drawn() for _ in range(15))}.values())
        match draw.choice(["upsert", "upsert", "delete", "delete where", "service"]) if step else "upsert":
            case "upsert":
                table.upsert(batch(*rows))
                model |= {place(one): one for one in rows}
            case "delete":
                table.delete(batch(*rows))
                for one in rows:
                    model.pop(place(one), None)
            case "delete where":
                condition = draw.choice(CONDITIONS)
                gone = matching(model, condition)
                assert table.delete(where=condition).deleted == len(gone) or kind == "merge_on_read"
                model = {key: one for key, one in model.items() if one not in gone}
            case _:
                draw.choice([table.compact, table.maintenance.cluster])()
        wanted = sorted(model.values(), key=str)
        assert sorted(plain(table), key=str) == wanted, f"after step {step}"
    for condition in CONDITIONS:
        found = plain(table, where=condition)
        assert sorted(found, key=str) == sorted(matching(model, condition), key=str), condition
    found = plain_rows(table.get(batch(*model.values())))
    assert sorted(found, key=str) == sorted(model.values(), key=str), "found by their sources"
    assert table.verify().problems == []
    theirs = [{name: one[name] for name in SCHEMA.names} for one in hudi_rows(tmp_path / "t")]
    assert len(theirs) == len(model), "Apache Hudi's readers see an ordinary partitioned table"


def plain(table: hoodoo.Table, **how: Any) -> list[dict[str, Any]]:
    return plain_rows(table.scan(**how).to_arrow())


def plain_rows(rows: pa.Table) -> list[dict[str, Any]]:
    found = rows.select(SCHEMA.names).to_pylist()
    return [one | {"ts": one["ts"] and one["ts"].astimezone(UTC)} for one in found]


def matching(model: dict[Any, dict[str, Any]], condition: str) -> list[dict[str, Any]]:
    """The rows that a table without partitions says match: nothing is pruned by a partition there."""
    found = Filter.parse(condition, SCHEMA)
    assert found
    return plain_rows(batch(*model.values()).filter(found.expression))


def groups(table: hoodoo.Table, where: str) -> list[str]:
    return sorted({task.group.partition for task in table.scan(where=where).tasks()})  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", KINDS)
def test_a_condition_on_the_source_opens_only_the_files_of_its_partitions(tmp_path: Path, kind: str) -> None:
    """Buckets have keys of the whole range, so that no statistics of a file help."""
    by = hoodoo.bucket(8, "id")
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="v", partition_by=by, type=kind, **QUIET)
    table.upsert(batch(*(row(n % 40, v=n) for n in range(400))))
    table.upsert(batch(*(row(n % 40, v=n) for n in range(0, 400, 3))))
    assert len(table.scan().tasks()) == 8
    assert groups(table, "id = 7") == [f"id_bucket={value(by, 7, pa.int64())}"]
    both = {f"id_bucket={value(by, key, pa.int64())}" for key in (7, 8)}
    assert groups(table, "id IN (7, 8)") == sorted(both) == groups(table, "id = 7 OR id = 8")
    assert groups(table, "id = 7 AND id = 8") == sorted(set.intersection(*({name} for name in both)))
    assert len(groups(table, "id != 7")) == len(groups(table, "NOT id = 7")) == len(groups(table, "id > 3")) == 8
    assert table.update({"zip": "'x'"}, where="id = 7").files == 1
    expected = table.scan(where="id = 7").to_arrow()
    for file in (tmp_path / "t").glob("id_bucket=*/*"):
        if file.parent.name != groups(table, "id = 7")[0]:
            file.unlink()
    assert table.scan(where="id = 7").to_arrow().equals(expected) and len(expected) == 10, "no other file is opened"


@pytest.mark.parametrize(
    ("by", "where", "left"),
    [
        (hoodoo.day("ts"), "ts >= '2026-03-02' AND ts < '2026-03-03'", ["ts_day=2026-03-02"]),
        (hoodoo.day("ts"), "ts = '2026-03-02 05:00:00'", ["ts_day=2026-03-02"]),
        (hoodoo.day("ts"), "ts IS NULL", ["ts_day=__HIVE_DEFAULT_PARTITION__"]),
        (hoodoo.hour("ts"), "ts > '2026-04-09 05:30:00'", ["ts_hour=2026-04-09-05", "ts_hour=2026-04-09-23"]),
        (hoodoo.month("ts"), "ts < '2026-04-01'", ["ts_month=2026-03"]),
        (hoodoo.year("ts"), "ts < '2026-01-01'", []),
        (hoodoo.truncate(2, "zip"), "zip LIKE '123%'", ["zip_trunc=12"]),
        (hoodoo.truncate(2, "zip"), "zip = '345'", ["zip_trunc=34"]),
        (hoodoo.truncate(10, "id"), "id >= 25 AND id < 28", ["id_trunc=20"]),
    ],
    ids=str,
)
def test_partitions_alone_tell_what_a_condition_on_the_source_can_concern(
    tmp_path: Path, by: Any, where: str, left: list[str]
) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="v", partition_by=by, **QUIET)
    moments = [*(at(day, hour, month) for month in (3, 4) for day in (1, 2, 9) for hour in (0, 5, 23)), None]
    zips = ["12345", "29999", "345", None]
    table.upsert(batch(*(row(n % 40, moments[n % 19], zips[n % 4], n) for n in range(400))))
    config, _, view = table.handle.look()
    condition = Filter.parse(where, config.schema)
    assert condition
    pruning = FilePruning(config, condition.tree, own=True)
    found = [partition for partition in view.partitions if pruning.may_match_in(partition)]
    unknown = [one for one in view.partitions if "__HIVE" in one and "IS NULL" not in where]
    assert sorted(found) == sorted([*left, *unknown]), "null and '' share a folder, which tells nothing"
    assert len(view.partitions) > len(found)


def test_pulls_changes_and_older_snapshots_prune_by_the_source_too(table: hoodoo.Table) -> None:
    start = table.cursor
    table.upsert(batch(*(row(key, at(1 + key % 5)) for key in range(20))))
    middle = table.cursor
    table.upsert(batch(*(row(key, at(1 + key % 5), v=1) for key in range(10))))
    where = "ts >= '2026-03-02' AND ts < '2026-03-03'"
    assert len(table.incremental(start, where=where).tasks()) == 1
    assert sorted(table.incremental(middle, where=where).to_arrow()["id"].to_pylist()) == [1, 6]
    for versions in ("net", "all"):
        for since, count in ((start, 4), (middle, 2), ("earliest", 4)):
            changes = table.changes(since, where=where, versions=versions)
            every = table.changes(since, versions=versions).to_arrow()
            mine = [one for one in every.to_pylist() if one["after"]["ts_day"] == dt.date(2026, 3, 2)]
            assert sorted(map(repr, changes.to_arrow().to_pylist())) == sorted(map(repr, mine))
            assert len(mine) == (count if versions == "net" else count + 2 * (since != middle))
            assert len(changes.tasks()) == len(table.changes(since, versions=versions).tasks()) / 5
    assert len(table.scan(where=where, as_of=middle).tasks()) == 1
