"""Every argument of every public call, with odd values: each is taken, or refused by an error that says what to do.

It happened that `hoodoo.Table("path")`, `register(None)`, a path of bytes or an unknown option of pandas ended in an
AttributeError or a TypeError of some library far below. Here the calls and their parameters come from
`inspect.signature`; a parameter that has no line below fails, so that a new one cannot be forgotten.
"""

from __future__ import annotations

import inspect
import math
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import hoodoo
from hoodoo.compactor.limits import Limits
from hoodoo.readers.changes.changes import Changes
from hoodoo.readers.changes.incremental import IncrementalRows
from hoodoo.readers.pin import Pin
from hoodoo.readers.scan import Scan
from hoodoo.table.consumer import Consumer
from hoodoo.table.merging import Merge
from hoodoo.table.quarantine import Quarantine
from hoodoo.table.sink import Sink

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
ROWS = [{"id": "a", "day": "x", "ts": 1, "v": 1}, {"id": "b", "day": "y", "ts": 1, "v": 2}]

ODD: dict[str, Any] = {
    "None": None,
    "True": True,
    "zero": 0,
    "negative": -1,
    "huge number": 10**400,
    "huge float": 1e300,
    "not a number": math.nan,
    "infinity": math.inf,
    "empty text": "",
    "unknown name": "no_such_name",
    "huge text": "x" * 200_000,
    "text with NUL": "a\0b",
    "lone surrogate": "\udc80",
    "line break": "a\nb",
    "bytes": b"bytes",
    "empty list": [],
    "list of numbers": [1, 2],
    "list of None": [None],
    "list of lists": [[]],
    "list of unknown names": ["no_such_name"],
    "huge list": ["no_such_name"] * 20_000,
    "empty dict": {},
    "dict": {"no_such_name": 1},
    "dict with a key of no text": {1: 2},
    "set": {"no_such_name"},
    "object": object(),
    "type": int,
    "function": len,
    "array": pa.array([1.5]),
    "schema": pa.schema([]),
    "path": Path("no_such_path"),
    "generator": (number for number in [1]),
}
"""None, wrong types, empty values, unknown names, huge values. Parameters of a kind of their own add theirs below."""

MORE: dict[str, dict[str, Any]] = {
    "rows": {
        "rows without columns": pa.table({}),
        "a row of None": [None],
        "a key of None": [{"id": None, "day": None, "ts": None, "v": None}],
        "a huge key": [{"id": "k" * 100_000, "day": "x", "ts": 1, "v": 1}],
        "a huge partition": [{"id": "k", "day": "d" * 100_000, "ts": 1, "v": 1}],
        "unknown column": [{**ROWS[0], "no_such_name": 1}],
    },
    "position": {
        "a time without zone": "2026-01-01T00:00:00",
        "a time too late": "9999-12-31T23:59:59+00:00",
        "a time too early": "0001-01-01T00:00:00+23:00",
        "14 digits": "2" * 14,
        "17 digits": "9" * 17,
        "another table's cursor": hoodoo.Cursor("0" * 32, 1),
        "a cursor of nothing": hoodoo.Cursor(None, None),  # type: ignore[arg-type]
        "a huge cursor": "hoodoo:" + "0" * 32 + ":" + "9" * 20,
    },
    "where": {
        "huge nesting": "(" * 5_000 + "v = 1" + ")" * 5_000,
        "many terms": " OR ".join(["v = 1"] * 3_000),
        "huge literal": "v = 1" + "0" * 5_000,
        "unknown column": "no_such_name = 1",
        "an expression": pa.compute.field("no_such_name") == 1,
    },
    "storage": {"unknown option": {"no_such_name": 1}, "wrong type": {"allow_network_fs": object()}},
    "path": {"unknown scheme": "gs://bucket/x", "no bucket": "s3://", "one slash": "s3:/bucket/x", "home": "~nobody/x"},
    "transaction": {"a pair of None": (None, None), "huge version": ("app", 10**400), "huge name": ("a" * 10**5, 1)},
    "set": {
        "unknown column in an expression": {"v": "no_such_name + 1"},
        "huge nesting": {"v": "(" * 5_000 + "v" + ")" * 5_000},
        "many terms": {"v": " + ".join(["v"] * 3_000)},
        "no expression": {"v": "SELECT"},
        "an object": {"v": object()},
        "a huge number": {"v": 10**400},
        "NaN": {"v": math.nan},
        "a key of bytes": {b"v": 1},
    },
    "plain": {},
}

_FITTING = {
    **{"evolve": "plain", "missing": "plain"},
    **{"on_bad_rows": "plain", "max_bad_rows": "plain", "max_bad_share": "plain"},
}
TRANSFORMS = ("year", "month", "day", "hour", "bucket", "truncate")
LINES: dict[str, dict[str, str]] = {
    "hoodoo.create": {
        "path": "path",
        "schema": "plain",
        "key": "plain",
        "partition_by": "plain",
        "order_by": "plain",
        "type": "plain",
        "storage": "storage",
        "name": "plain",
        "change_log": "plain",
        "checks": "plain",
        "allow_moving_keys": "plain",
        "rename": "plain",
        **{option.name: "plain" for option in fields(hoodoo.Options)},
    },
    "hoodoo.open": {"path": "path", "storage": "storage"},
    "hoodoo.register": {"spark": "plain"},
    "hoodoo.on_commit": {"hook": "plain", "path": "plain"},
    **{f"hoodoo.{name}": {"column": "plain"} for name in ("year", "month", "day", "hour")},
    "hoodoo.bucket": {"n": "plain", "column": "plain"},
    "hoodoo.truncate": {"width": "plain", "column": "plain"},
    "hoodoo.sql": {"spark": "plain", "text": "plain", "rewrite": "plain"},
    "hoodoo.Table": {"store": "path", "environment": "plain"},
    "hoodoo.Worker": {
        "tables": "plain",
        "services": "plain",
        "poll_s": "plain",
        "once": "plain",
        "logs_min": "plain",
        "grace_s": "plain",
        "engine": "plain",
        "limits": "plain",
        "metrics_port": "plain",
        "progress": "plain",
        "register": "plain",
        "register_hudi": "plain",
        "catalog": "plain",
        "catalog_properties": "plain",
    },
    "Limits": {"memory_bytes": "plain", "bytes_per_second": "plain", "groups_at_once": "plain"},
    "Table.set_options": {option.name: "plain" for option in fields(hoodoo.Options)},
    "Table.set_checks": {"checks": "plain"},
    "Table.upsert": {
        "data": "rows",
        "duplicates": "plain",
        "transaction": "transaction",
        "if_head": "position",
        "columns": "plain",
        "new_keys": "plain",
        "merge": "plain",
        "unavailable": "plain",
        **_FITTING,
    },
    **{
        f"Table.{name}": {
            "data": "rows",
            "existing": "plain",
            "duplicates": "plain",
            "transaction": "transaction",
            **_FITTING,
            **more,
        }
        for name, more in (("insert", {"if_head": "position"}), ("bulk_insert", {"sort": "plain"}))
    },
    "Table.delete": {"data": "rows", "transaction": "transaction", "where": "where", "if_head": "position"},
    "Table.update": {"set": "set", "where": "where", "transaction": "transaction", "if_head": "position"},
    "Table.merge": {"source": "rows"},
    **{
        f"Merge.{name}": {**({values: "set"} if values else {}), "where": "where"}
        for name, values in {
            "when_matched_update": "set",
            "when_matched_update_all": "",
            "when_matched_delete": "",
            "when_not_matched_insert": "values",
            "when_not_matched_insert_all": "",
            "when_not_matched_by_source_update": "set",
            "when_not_matched_by_source_delete": "",
        }.items()
    },
    "Merge.execute": {"transaction": "transaction", "if_head": "position"},
    "Table.insert_overwrite": {
        "data": "rows",
        "whole_table": "plain",
        "duplicates": "plain",
        "transaction": "transaction",
        **_FITTING,
    },
    "Table.add_column": dict.fromkeys(("name", "type", "default", "after", "first", "rewrite"), "plain"),
    "Table.drop_column": dict.fromkeys(("name", "rewrite"), "plain"),
    "Table.rename_column": dict.fromkeys(("name", "to", "rewrite"), "plain"),
    "Table.move_column": dict.fromkeys(("name", "after", "first"), "plain"),
    "Table.widen_column": dict.fromkeys(("name", "type", "rewrite"), "plain"),
    "Table.retype_column": dict.fromkeys(("name", "type", "rewrite"), "plain"),
    "Table.make_nullable": {"name": "plain"},
    "Table.alter": dict.fromkeys(("alterations", "rewrite"), "plain"),
    "Table.schema_at": {"position": "position"},
    "Table.delete_partitions": {"partitions": "plain", "transaction": "transaction"},
    "Table.sink": {"name": "plain", "operation": "plain", "positions": "plain", "duplicates": "plain"},
    "Table.scan": {
        "columns": "plain",
        "where": "where",
        "as_of": "position",
        "read_optimized": "plain",
        "meta": "plain",
        "verified": "plain",
        "names": "plain",
    },
    "Table.incremental": {
        "since": "position",
        "until": "position",
        "columns": "plain",
        "where": "where",
        "meta": "plain",
        "deletes": "plain",
        "names": "plain",
    },
    "Table.changes": {
        "since": "position",
        "until": "position",
        "columns": "plain",
        "where": "where",
        "versions": "plain",
        "names": "plain",
    },
    "Table.diff": {"a": "position", "b": "position", "columns": "plain", "where": "where", "names": "plain"},
    "Table.get": {"keys": "rows", "columns": "plain", "as_of": "position", "meta": "plain", "names": "plain"},
    "Table.follow": {
        "since": "position",
        "mode": "plain",
        "columns": "plain",
        "where": "where",
        "deletes": "plain",
        "versions": "plain",
        "most_commits": "plain",
        "poll_s": "plain",
        "timeout_s": "plain",
    },
    "Table.files": {"as_of": "position"},
    "Table.duplicates": {"as_of": "position"},
    "Table.timeline": {"newest": "plain"},
    "Table.history": {"newest": "plain"},
    "Table.application": {"name": "plain"},
    "Table.compact": {
        "logs_min": "plain",
        "strategy": "plain",
        "memory_bytes": "plain",
        "bytes_per_second": "plain",
        "groups_at_once": "plain",
    },
    "Table.cluster": {
        "by": "plain",
        "order": "plain",
        "partitions": "plain",
        "memory_bytes": "plain",
        "bytes_per_second": "plain",
        "groups_at_once": "plain",
    },
    "Table.clean": {"retain_hours": "plain", "retain_commits": "plain", "retain_versions": "plain"},
    "Table.expire": {"older_than_hours": "plain"},
    "Table.archive": {"older_than_hours": "plain", "keep_instants": "plain"},
    "Table.export": {
        "delta": "plain",
        "iceberg": "plain",
        "mode": "plain",
        "history": "plain",
        "rebuild": "plain",
        "register": "plain",
        "catalog": "plain",
        "catalog_properties": "plain",
    },
    "Table.register": {"name": "plain", "catalog": "plain", "catalog_properties": "plain"},
    "Table.sweep": {"older_than_hours": "plain"},
    "Table.purge": {"data": "rows", "older_than_hours": "plain"},
    "Table.rollback": {"instant": "position"},
    "Table.resolve": {"instant": "position"},
    "Table.pin": {"as_of": "position", "hours": "plain"},
    "Table.savepoint": {"name": "plain", "as_of": "position"},
    "Table.delete_savepoint": {"name": "plain"},
    "Table.consumer": {"name": "plain", "start": "position"},
    "Table.restore": {"to": "position"},
    "Table.head": {"rows": "plain"},
    "Table.salvage": {"dry_run": "plain", "accept_loss": "plain"},
    **{
        f"{kind}.{name}": line
        for kind in ("Scan", "Changes", "IncrementalRows")
        for name, line in {
            "tables": {"rows": "plain"},
            "head": {"rows": "plain"},
            "batches": {"rows": "plain"},
            "to_pandas": {"split_blocks": "plain", "no_such_name": "plain"},
            "to_polars": {"lazy": "plain"},
            "to_duckdb": {"connection": "plain", "lazy": "plain"},
            "to_spark": {"spark": "plain"},
        }.items()
    },
    "Pin.scan": {"columns": "plain", "where": "where", "read_optimized": "plain", "meta": "plain", "names": "plain"},
    "Pin.renew": {"hours": "plain"},
    "Consumer.commit": {"cursor": "position"},
    "Sink": {"frame": "rows", "batch_id": "plain"},
    "Quarantine.scan": {"columns": "plain", "where": "where"},
    "Quarantine.rows": {"state": "plain"},
    "Quarantine.count": {"state": "plain"},
    "Quarantine.original": {"position": "plain"},
    "Quarantine.drop": {"positions": "plain"},
    "Quarantine.replay": {"overwrite": "plain", "missing": "plain", "time_unit": "plain"},
}
"""call -> parameter -> what it takes besides ODD. Of `**options` each is named."""

WITHOUT_ARGUMENTS = {
    "Table.count",
    *(
        f"Table.{name}"
        for name in (
            "adopt",
            "services",
            "savepoints",
            "consumers",
            "verify",
            "lag",
            "quarantine",
            "schemas",
            "applications",
        )
    ),
    *(
        f"{kind}.{name}"
        for kind in ("Scan", "Changes", "IncrementalRows")
        for name in ("to_arrow", "to_dataset", "count", "tasks")
    ),
    "Pin.release",
    "Consumer.drop",
}
NEEDED: dict[str, dict[str, Any]] = {
    "hoodoo.create": {"schema": SCHEMA, "key": "id"},
    "hoodoo.on_commit": {"hook": len},
    **{f"hoodoo.{name}": {"column": "v"} for name in ("year", "month", "day", "hour")},
    "hoodoo.bucket": {"n": 4, "column": "v"},
    "hoodoo.truncate": {"width": 4, "column": "v"},
    "Table.upsert": {"data": ROWS},
    "Table.insert": {"data": ROWS[:0] or pa.table(dict.fromkeys(SCHEMA.names, []), SCHEMA)},
    "Table.bulk_insert": {"data": pa.table(dict.fromkeys(SCHEMA.names, []), SCHEMA)},
    "Table.delete": {"data": [{"id": "c", "day": "x"}]},
    "Table.update": {"set": {"v": 1}},
    "Table.merge": {"source": ROWS},
    "Merge.when_matched_update": {"set": {"v": 1}},
    "Merge.when_not_matched_insert": {"values": {"v": 1}},
    "Merge.when_not_matched_by_source_update": {"set": {"v": 1}},
    "Table.insert_overwrite": {"data": ROWS},
    "Table.delete_partitions": {"partitions": ["z"]},
    "Table.add_column": {"name": "new", "type": pa.int64()},
    "Table.drop_column": {"name": "v"},
    "Table.rename_column": {"name": "v", "to": "w", "rewrite": True},
    "Table.move_column": {"name": "v", "first": True},
    "Table.widen_column": {"name": "v", "type": pa.string()},
    "Table.retype_column": {"name": "v", "type": pa.int32()},
    "Table.make_nullable": {"name": "v"},
    "Table.alter": {"alterations": []},
    "Table.schema_at": {"position": "earliest"},
    "Table.sink": {"name": "s"},
    "Table.incremental": {"since": "earliest"},
    "Table.changes": {"since": "earliest"},
    "Table.diff": {"a": "earliest"},
    "Table.get": {"keys": ["a"]},
    "Table.follow": {"since": "earliest"},
    "Table.purge": {"data": [{"id": "c", "day": "x"}]},
    "Table.export": {"delta": True},
    "Table.register": {"name": "lake.trips"},
    "Table.savepoint": {"name": "s"},
    "Table.consumer": {"name": "c"},
    "Sink": {"frame": ROWS, "batch_id": 0},
}
"""What a call cannot do without while another of its parameters is tried."""

REMEDY = re.compile(
    r"\b(takes?|pass|use|give|add|known|there (is|are)|did you mean|write|must|needs?|open|choose|rename|fill|drop it|"
    r"call|let|name|remove|free|is (after|before)|did not exist|set it|"
    r"earliest|cast|create|shorten|look|expected|accepts|lists all)\b",
    re.IGNORECASE,
)


def _callables() -> dict[str, Callable[..., Any]]:
    """Every public call, by the name that LINES has for it."""
    found: dict[str, Callable[..., Any]] = {
        "hoodoo.create": hoodoo.create,
        "hoodoo.open": hoodoo.open,
        "hoodoo.register": hoodoo.register,
        "hoodoo.on_commit": hoodoo.on_commit,
        **{f"hoodoo.{name}": getattr(hoodoo, name) for name in TRANSFORMS},
        "hoodoo.sql": hoodoo.sql,
        "hoodoo.Table": hoodoo.Table.__init__,
        "hoodoo.Worker": hoodoo.Worker.__init__,
        "Limits": Limits.__init__,
        "Sink": Sink.__call__,
    }
    for kind in (hoodoo.Table, Scan, Changes, IncrementalRows, Pin, Consumer, Quarantine, Merge):
        for name, member in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                found[f"{kind.__name__}.{name}"] = member
    return found


def _parameters(call: Callable[..., Any]) -> set[str]:
    """Its parameters; `**options` and `**arguments` stand for names that no signature gives."""
    found = inspect.signature(call).parameters.values()
    return {one.name for one in found if one.name != "self" and one.kind is not inspect.Parameter.VAR_KEYWORD}


@pytest.mark.parametrize("name", _callables())
def test_every_parameter_has_a_line(name: str) -> None:
    parameters = _parameters(_callables()[name])
    assert parameters <= set(LINES.get(name, ())), f"{name}: {parameters - set(LINES.get(name, ()))} have no line"
    assert name in LINES or name in WITHOUT_ARGUMENTS


def test_every_line_is_of_a_call() -> None:
    assert set(LINES) | WITHOUT_ARGUMENTS == set(_callables())
    public = {name for name in hoodoo.__all__ if name not in dir(hoodoo.errors)}
    called = {name.removeprefix("hoodoo.").partition(".")[0] for name in _callables()}
    changes = {"AddColumn", "DropColumn", "MakeNullable", "MoveColumn", "RenameColumn", "RetypeColumn", "WidenColumn"}
    assert public - called == {
        "CommitEvent",
        "CustomMerge",
        "Cursor",
        "Options",
        "WriteResult",
        "ingest",  # tests/ingestion has its arguments, and tests/sources those of sources
        "sources",
        *changes,
    }  # the others are values without checks of their own


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, made once: others are copies of it."""
    path = tmp_path_factory.mktemp("made") / "t"
    table = hoodoo.create(path, SCHEMA, key="id", partition_by="day", order_by="ts")
    table.upsert(ROWS)
    table.upsert(ROWS)
    return path


@pytest.fixture
def table(made: Path, tmp_path: Path) -> hoodoo.Table:
    shutil.copytree(made, tmp_path / "t")
    return hoodoo.open(tmp_path / "t")


def _call(name: str, table: hoodoo.Table, tmp_path: Path) -> Callable[..., Any]:
    """The call `name` on `table`, which needs no argument but NEEDED."""
    home, _, method = name.partition(".")
    if home == "hoodoo":
        numbers = iter(range(1_000_000))
        if method == "create":
            return lambda **given: hoodoo.create(**({"path": tmp_path / f"n{next(numbers)}", **given}))
        if method == "open":
            return lambda **given: hoodoo.open(**({"path": table.path, **given}))
        if method == "Table":
            return lambda **given: hoodoo.Table(**({"store": table.handle.store, **given}))
        if method == "Worker":
            return lambda **given: hoodoo.Worker(**({"tables": [table], **given}))
        if method == "on_commit":
            return lambda **given: hoodoo.on_commit(**given)()
        if method == "sql":
            return lambda **given: hoodoo.sql(**({"spark": None, "text": "SELECT 1", **given}))
        return getattr(hoodoo, method)  # type: ignore[no-any-return]
    if home == "Limits":
        return Limits
    if home == "Sink":
        return table.sink("s")
    if home == "Quarantine":
        table.upsert([{"id": None, "day": "x", "ts": 1, "v": 1}], on_bad_rows="quarantine")
        return getattr(table.quarantine(), method)  # type: ignore[no-any-return]
    if home == "Merge":
        return lambda **given: _merged(table, method, given)
    if home in ("Pin", "Consumer"):
        made: Any = table.pin() if home == "Pin" else table.consumer("c")
    else:
        made = {
            "Table": lambda: table,
            "Scan": table.scan,
            "Changes": lambda: table.changes("earliest"),
            "IncrementalRows": lambda: table.incremental(hoodoo.Cursor(table.cursor.table, 2), deletes=True),
        }[home]()
    return getattr(made, method)  # type: ignore[no-any-return]


def _merged(table: hoodoo.Table, method: str, given: dict[str, Any]) -> Any:
    """A merge with the clause `method`; arguments of a clause are looked at when it is carried out."""
    if method == "execute":
        return table.merge(ROWS).when_matched_delete().execute(**given)
    return getattr(table.merge(ROWS), method)(**given).execute()


def _odd_values(kind: str) -> Iterator[tuple[str, Any]]:
    yield from ODD.items()
    yield from MORE[kind].items()


@pytest.mark.parametrize(
    ("name", "parameter"), [(name, parameter) for name, line in LINES.items() for parameter in line]
)
def test_an_odd_argument_is_taken_or_refused_in_words(
    name: str, parameter: str, table: hoodoo.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")  # where relative paths begin
    call, wrong = _call(name, table, tmp_path), []
    for what, value in _odd_values(LINES[name][parameter]):
        try:
            result = call(**{**NEEDED.get(name, {}), parameter: value})
            if isinstance(result, Iterator) and name == "Scan.tables":
                list(result)
        except hoodoo.HoodooError as problem:
            fine = problem.code and problem.details and len(problem.message) < 3_000 and REMEDY.search(problem.message)
            if not (fine and problem.message.rstrip(" ^\n").endswith((".", "?", "…")) or "\n" in problem.message):
                wrong.append(f"{what}: {type(problem).__name__} {problem.message[:200]!r}")
        except Exception as problem:
            wrong.append(f"{what}: RAW {type(problem).__name__} {str(problem)[:150]!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("value", [pc.field("n"), pd.DataFrame({"n": [1]}), pd.NA], ids=["expression", "frame", "NA"])
def test_an_argument_without_a_truth_value_is_refused_by_an_error_of_hoodoo(tmp_path: Path, value: Any) -> None:
    table = hoodoo.create(tmp_path / "t", "id bigint, n bigint", key="id")
    calls = (
        lambda: table.merge([{"id": 1, "n": 2}]).when_matched_update(value),
        lambda: table.merge([{"id": 1, "n": 2}]).when_not_matched_insert(value),
        lambda: table.make_nullable(value),
        lambda: table.drop_column(value),
        lambda: table.widen_column(value, pa.float64()),
        lambda: table.rename_column(value, "m"),
        lambda: table.rename_column("n", value),
        lambda: table.scan(meta=value),
        lambda: table.scan(read_optimized=value),
        lambda: table.scan(verified=value),
        lambda: table.get([1], meta=value),
        lambda: table.incremental("earliest", deletes=value),
    )
    for call in calls:
        with pytest.raises(hoodoo.HoodooError):
            call()
