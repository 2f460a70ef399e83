"""Every argument of every public call, with odd values: each is taken, or refused by an error that says what to do.

It happened that `hoodoo.Table("path")`, `register(None)`, a path of bytes or an unknown option of pandas ended in an
AttributeError or a TypeError of some library far below. Here the calls and their parameters come from
`inspect.signature`. A parameter that has no line in `argument_catalog` fails, so that no new parameter is forgotten.
"""

from __future__ import annotations

import inspect
import re
import shutil
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from argument_catalog import LINES, MORE, NEEDED, ODD, ROWS, SCHEMA, TRANSFORMS, WITHOUT_ARGUMENTS

import hoodoo
from hoodoo.compactor.limits import ServiceLimits
from hoodoo.readers.changes.changes import Changes
from hoodoo.readers.changes.incremental import IncrementalRows
from hoodoo.readers.pin import Pin
from hoodoo.readers.scan import Scan
from hoodoo.table.altering import Alter
from hoodoo.table.consumer import Consumer
from hoodoo.table.inspecting import Inspect
from hoodoo.table.maintenance import Maintenance
from hoodoo.table.merging import Merge
from hoodoo.table.quarantine import Quarantine
from hoodoo.table.savepoints import Savepoints
from hoodoo.table.sink import Sink

REMEDY = re.compile(
    r"\b(takes?|pass|use|give|add|known|there (is|are)|did you mean|write|must|needs?|open|choose|rename|fill|drop it|"
    r"call|let|name|remove|free|is (after|before)|did not exist|set it|"
    r"earliest|cast|create|shorten|look|expected|accepts|lists? all|change the key|leave it out|requires)\b",
    re.IGNORECASE,
)


def _callables() -> dict[str, Callable[..., Any]]:
    """Every public call, by the name that LINES has for it."""
    found: dict[str, Callable[..., Any]] = {
        "hoodoo.create": hoodoo.create,
        "hoodoo.open": hoodoo.open,
        "hoodoo.drop": hoodoo.drop,
        "hoodoo.register": hoodoo.register,
        "hoodoo.on_commit": hoodoo.on_commit,
        "hoodoo.use": hoodoo.use,
        **{f"hoodoo.{name}": getattr(hoodoo, name) for name in TRANSFORMS},
        "hoodoo.sql": hoodoo.sql,
        "hoodoo.Table": hoodoo.Table.__init__,
        "hoodoo.Worker": hoodoo.Worker.__init__,
        "hoodoo.BadRowLimits": hoodoo.BadRowLimits.__init__,
        "Limits": ServiceLimits.__init__,
        "Sink": Sink.__call__,
        "Table.alter": Alter.__call__,
    }
    kinds = {
        kind.__name__: kind for kind in (hoodoo.Table, Scan, Changes, IncrementalRows, Pin, Consumer, Quarantine, Merge)
    }
    kinds |= {f"Table.{kind.NAMESPACE}": kind for kind in (Alter, Inspect, Maintenance, Savepoints)}
    for title, kind in kinds.items():
        for name, member in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                found[f"{title}.{name}"] = member
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
        if method == "drop":
            return lambda **given: hoodoo.drop(**({"path": table.path, **given}))
        if method == "Table":
            return lambda **given: hoodoo.Table(**({"store": table.handle.store, **given}))
        if method == "Worker":
            return lambda **given: hoodoo.Worker(**({"tables": [table], **given}))
        if method == "use":
            return lambda **given: (
                hoodoo.use(**({"folder": table.path.rpartition("/")[0], **given})),
                hoodoo.use(None),
            )
        if method == "on_commit":
            return lambda **given: hoodoo.on_commit(**given)()
        if method == "sql":
            return lambda **given: hoodoo.sql(**({"spark": None, "text": "SELECT 1", **given}))
        return getattr(hoodoo, method)  # type: ignore[no-any-return]
    if home == "Limits":
        return ServiceLimits
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
    return attrgetter(method)(made)  # type: ignore[no-any-return]


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
        lambda: table.alter.make_nullable(value),
        lambda: table.alter.drop_column(value),
        lambda: table.alter.widen_column(value, pa.float64()),
        lambda: table.alter.rename_column(value, "m"),
        lambda: table.alter.rename_column("n", value),
        lambda: table.scan(meta=value),
        lambda: table.scan(read_optimized=value),
        lambda: table.scan(verified=value),
        lambda: table.get([1], meta=value),
        lambda: table.incremental("earliest", deletes=value),
    )
    for call in calls:
        with pytest.raises(hoodoo.HoodooError):
            call()
