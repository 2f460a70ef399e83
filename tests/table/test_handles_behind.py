"""An open handle pins nothing: whatever other handles did since, its answers are those of a handle opened just now.

It happened that `verify()` of a handle which had not looked for long called a sound table damaged, and said to restore
slots: it read files of today under the columns that it had seen last. `set_checks()` refused columns that were there,
and `schema`, `options` and `checks` told what had been. Here the calls come from `inspect`: a public method or property
that has no line in CALLS fails, so that a new one cannot be forgotten.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faulty_store import Died, FaultyStore

import hoodoo
from hoodoo.table.altering import Alter
from hoodoo.table.inspecting import Inspect
from hoodoo.table.maintenance import Maintenance
from hoodoo.table.quarantine import Quarantine
from hoodoo.table.savepoints import Savepoints
from hoodoo.timeline.layout import SLOTS

KINDS = ("merge_on_read", "copy_on_write")
BEFORE = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("part", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("a", pa.int64()),
        pa.field("must", pa.int64(), nullable=False),
        pa.field("x", pa.int32()),
    ]
)


def old_row(key: int, a: int, part: str = "p") -> dict[str, Any]:
    return {"id": key, "part": part, "ts": 1, "a": a, "must": 1, "x": 1}


def row(key: int, **values: Any) -> dict[str, Any]:
    """As the table has them by now."""
    return {"id": key, "part": "p", "ts": 5, "b": 5, "must": 1, "x": 2**40, "n": 7} | values


def changed_in_everything(table: hoodoo.Table) -> None:
    """What the handle that is behind has not seen: columns, options, checks, savepoints, consumers, bad rows."""
    table.alter.add_column("n", pa.int32(), default=4)
    table.alter.rename_column("a", "b", rewrite=True)
    table.alter.widen_column("x", pa.int64(), rewrite=True)
    table.upsert([row(1), row(3, part="q")])
    table.savepoints.create("kept")
    table.consumer("reader", table.cursor)
    table.upsert([row(1, ts=6), row(4, id=None)], on_bad_rows=hoodoo.BadRowLimits(share=1))
    table.set_checks({"not_negative": "b >= 0"})
    table.set_options(compact_after_logs=7, clean_every=None, retain_commits=3, consumer_hours=1)


def newest(table: hoodoo.Table) -> str:
    """The instant of the newest commit that changed rows."""
    return next(iter(table.history())).instant


def aside(quarantine: Quarantine[hoodoo.Table]) -> Any:
    return [quarantine.count(), quarantine.rows(), quarantine.replay()]


def of_consumer(table: hoodoo.Table) -> Any:
    consumer = table.consumer("reader")
    before, _ = consumer.position, consumer.commit(table.cursor)
    return [before, consumer.position]


def pinned(table: hoodoo.Table) -> Any:
    with table.pin() as pin:
        return pin.scan(where="n > 3").to_arrow()


CALLS: dict[str, Callable[[hoodoo.Table], Any]] = {
    "name": lambda table: table.name,
    "type": lambda table: table.type,
    "path": lambda table: table.path,
    "schema": lambda table: table.schema,
    "key": lambda table: table.key,
    "partition_by": lambda table: table.partition_by,
    "inspect.transforms": lambda table: table.inspect.transforms,
    "order_by": lambda table: table.order_by,
    "options": lambda table: table.options,
    "checks": lambda table: table.checks,
    "inspect.original_names": lambda table: table.inspect.original_names,
    "cursor": lambda table: table.cursor,
    "set_options": lambda table: table.set_options(retain_hours=3),
    "set_checks": lambda table: table.set_checks({"positive": "n > 0 AND b > -5"}),
    "quarantine": lambda table: aside(table.quarantine()),
    "upsert": lambda table: table.upsert([row(2), row(9, n=None)]),
    "insert": lambda table: table.insert([row(9)]),
    "delete": lambda table: table.delete([{"id": 1, "part": "p"}]),
    "update": lambda table: table.update({"n": "n + b", "x": 2**40}, where="b >= 0"),
    "merge": lambda table: (
        table.merge([row(1), row(9)]).when_matched_update({"n": "source.n"}).when_not_matched_insert_all().execute()
    ),
    "insert_overwrite": lambda table: table.insert_overwrite([row(9)]),
    "delete_partitions": lambda table: table.delete_partitions(["q"]),
    "sink": lambda table: table.sink("stream")([row(9)], 1),
    "inspect.duplicates": lambda table: table.inspect.duplicates(),
    "scan": lambda table: table.scan(where="n > 3"),
    "count": lambda table: table.count(),
    "head": lambda table: table.head(100),
    "incremental": lambda table: table.incremental("kept", deletes=True),
    "changes": lambda table: table.changes("earliest", where="n > 3"),
    "get": lambda table: table.get([3, 1, 2], columns=["n", "b"]),
    "follow": lambda table: [rows.to_arrow() for rows in table.follow("kept", columns=["n"], timeout_seconds=0)],
    "inspect.files": lambda table: table.inspect.files().drop_columns(["base_file", "file_group"]),
    "inspect.timeline": lambda table: table.inspect.timeline(),
    "history": lambda table: table.history(),
    "inspect.application": lambda table: table.inspect.application("job"),
    "inspect.applications": lambda table: table.inspect.applications(),
    "inspect.schemas": lambda table: table.inspect.schemas(),
    "inspect.schema_at": lambda table: table.inspect.schema_at("kept"),
    "alter.add_column": lambda table: table.alter.add_column("m", pa.string(), after="n"),
    "alter.drop_column": lambda table: table.alter.drop_column("n"),
    "alter.rename_column": lambda table: table.alter.rename_column("b", "c", rewrite=True),
    "alter.move_column": lambda table: table.alter.move_column("n", first=True),
    "alter.retype_column": lambda table: table.alter.retype_column("n", pa.float64(), rewrite=True),
    "alter.widen_column": lambda table: table.alter.widen_column("n", pa.int64(), rewrite=True),
    "alter.make_nullable": lambda table: table.alter.make_nullable("must"),
    "alter": lambda table: table.alter([hoodoo.DropColumn("n")]),
    "compact": lambda table: table.compact(),
    "maintenance.cluster": lambda table: table.maintenance.cluster(sort_by="n", partitions=["p"]),
    "maintenance.services": lambda table: table.maintenance.services(),
    "maintenance.clean": lambda table: table.maintenance.clean(),
    "maintenance.expire": lambda table: table.maintenance.expire(older_than_hours=1_000),
    "maintenance.archive": lambda table: table.maintenance.archive(),
    "export": lambda table: table.export(delta=True, iceberg=True),
    "register": lambda table: table.register("lake.t"),
    "maintenance.sweep": lambda table: table.maintenance.sweep(),
    "maintenance.purge": lambda table: table.maintenance.purge([{"id": 2, "part": "p"}], older_than_hours=0),
    "maintenance.rollback": lambda table: table.maintenance.rollback(newest(table)),
    "maintenance.resolve": lambda table: table.maintenance.resolve(newest(table)),
    "pin": pinned,
    "savepoints.create": lambda table: table.savepoints.create("now"),
    "savepoints.list": lambda table: table.savepoints.list(),
    "savepoints.delete": lambda table: table.savepoints.delete("kept"),
    "consumer": of_consumer,
    "consumers": lambda table: table.consumers(),
    "restore": lambda table: table.restore("kept"),
    "maintenance.adopt": lambda table: table.maintenance.adopt(),
    "verify": lambda table: table.verify(),
    "maintenance.salvage": lambda table: table.maintenance.salvage(dry_run=True),
    "maintenance.lag": lambda table: table.maintenance.lag(),
}
"""Public name of Table -> what it is asked for, with arguments that mean nothing to who saw only the beginning."""

REFUSED: dict[str, type[hoodoo.HoodooError]] = {
    "maintenance.rollback": hoodoo.AlreadyCommitted,
    "maintenance.purge": hoodoo.PurgeBlocked,
    "register": hoodoo.EngineError,  # without pyiceberg; with it tests/formats does this
}
"""Calls whose right answer is an error, in words that tell what was seen."""
VARYING = {"seconds", "oldest_delta_seconds", "lag_seconds", "at", "held", "cleanable_bytes"}
"""Names of what depends on when it is asked, or on how well instants compress."""


def plain(value: Any) -> Any:
    """`value` in comparable parts, without instants, names of files and what varies."""
    if hasattr(value, "to_arrow"):
        value = value.to_arrow()
    if isinstance(value, pa.Table):
        rows = value.drop_columns([name for name in value.schema.names if name in VARYING])
        return [str(rows.schema), sorted(_text(row) for row in rows.to_pylist())]
    if is_dataclass(value) and not isinstance(value, (type, hoodoo.Cursor)):
        names = [field.name for field in fields(value) if not field.name.startswith("_")]
        return {name: plain(getattr(value, name)) for name in names if name not in VARYING and "bytes" not in name}
    if isinstance(value, Mapping):
        return {_text(name): plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return _text(value)


def _text(value: Any) -> str:
    value = re.sub(r"(hoodoo:[0-9a-f]{32}:\d+):[0-9a-f]{16}", r"\1", str(value))  # the digest of a slot has its time
    named = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-\d+_[-\d]+)?", "FILE", str(value))
    dated = re.sub(r"\b20\d\d-\d\d-\d\d[T ][\d:.]+(Z|\+00:00)?|datetime\([^)]*\)", "TIME", named)
    return re.sub(r"\d{17}|[\d.]+ (bytes|kB|MB)|\d+ (s|min)\b", "N", dated)


def answer(name: str, table: hoodoo.Table, *others: Callable[[], hoodoo.Table]) -> Any:
    """What `table` says, and what it and other handles find afterwards."""
    if name in REFUSED:
        with pytest.raises(REFUSED[name]) as problem:
            CALLS[name](table)
        found = plain(problem.value.message)
    else:
        found = plain(CALLS[name](table))
    after = plain(_everything(table))
    assert all(plain(_everything(other())) == after for other in others), "the handle itself is behind what it did"
    return str([found, after]).replace(str(Path(table.path).parent), "PLACE")


def _everything(table: hoodoo.Table) -> list[Any]:
    kept = [table.schema, table.options, table.checks, table.savepoints.list()]
    return [*kept, table.scan().to_arrow(), table.verify(), [one.position for one in table.consumers()]]


@pytest.fixture(scope="module", params=KINDS)
def stages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder with a table, and the same folder once everything has changed."""
    first, then = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("then")
    table = hoodoo.create(
        first / "t", BEFORE, key="id", partition_by="part", order_by="ts", type=request.param, compact_after_logs=None
    )
    table.upsert([old_row(1, 1), old_row(2, -1), old_row(5, 5, "q")])
    shutil.copytree(first, then, dirs_exist_ok=True)
    changed_in_everything(hoodoo.open(then / "t"))
    return first, then


@pytest.fixture
def behind(stages: tuple[Path, Path], tmp_path: Path) -> hoodoo.Table:
    """A handle that has seen only the first stage, of a table that is in the other one."""
    first, then = stages
    shutil.copytree(first, tmp_path / "behind")
    table = hoodoo.open(tmp_path / "behind" / "t")
    assert table.scan().count() == 3 and table.verify().ok
    shutil.copytree(then, tmp_path / "behind", dirs_exist_ok=True)
    return table


@pytest.fixture
def fresh(stages: tuple[Path, Path], tmp_path: Path) -> hoodoo.Table:
    shutil.copytree(stages[1], tmp_path / "fresh")
    return hoodoo.open(tmp_path / "fresh" / "t")


def test_every_public_name_of_a_table_has_a_line() -> None:
    namespaces = (Alter, Inspect, Maintenance, Savepoints)
    public = {name for name in dir(hoodoo.Table) if name[0] != "_"} - {kind.NAMESPACE for kind in namespaces} | {
        "alter"
    }
    public |= {f"{kind.NAMESPACE}.{name}" for kind in namespaces for name in vars(kind) if name[0].islower()}
    missing, unknown = public - set(CALLS), set(CALLS) - public
    assert not missing, f"add to CALLS what a handle that is behind is asked for by {', '.join(sorted(missing))}"
    assert not unknown, f"CALLS has lines of what no table has: {', '.join(sorted(unknown))}"


@pytest.mark.parametrize("name", CALLS)
def test_a_handle_that_is_behind_answers_as_one_opened_just_now(
    name: str, behind: hoodoo.Table, fresh: hoodoo.Table
) -> None:
    assert answer(name, behind, lambda: hoodoo.open(behind.path)) == answer(name, fresh)


def test_verify_of_a_handle_that_is_behind_publishes_what_a_dead_writer_did_not(tmp_path: Path) -> None:
    """It named a slot UNPUBLISHED where a handle opened just now called the table sound: opening had published it."""
    table = hoodoo.create(tmp_path / "t", BEFORE, key="id", partition_by="part", order_by="ts")
    dying = FaultyStore(table.path)
    writer = hoodoo.Table(dying)
    dying.fault = lambda number, operation, path: "die after" if path.startswith(SLOTS) else None
    with pytest.raises(Died):
        writer.upsert([old_row(1, 1)])
    assert table.verify().problems == []
    assert table.scan().count() == 1
