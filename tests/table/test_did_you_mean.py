"""A name, an argument or a value that there is not is answered with the one that is meant."""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo
from hoodoo import hints

SCHEMA = pa.schema([("id", pa.string()), ("status", pa.string()), ("n", pa.int64()), ("ts", pa.int64())])
ROWS = [{"id": "a", "status": "new", "n": 1, "ts": 1}, {"id": "b", "status": "old", "n": 2, "ts": 1}]


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    made = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    made.insert(ROWS)
    return made


# ---- names
def test_a_hint_for_a_table_names_calls_that_there_are(table: hoodoo.Table) -> None:
    for name, instead in hints.TABLE.items():
        with pytest.raises(AttributeError) as told:
            getattr(table, name)
        assert str(told.value) == f"A table has no {name!r}; instead: {instead}."
        for call in re.findall(r"(?<![.\w])([a-z_]+)\(", instead):
            assert callable(getattr(table, call)), call
        for call in re.findall(r"scan\([^)]*\)\.([a-z_]+)\(", instead):
            assert callable(getattr(hoodoo.Scan, call)), call


def test_a_hint_for_a_read_names_calls_that_there_are(table: hoodoo.Table) -> None:
    for name, instead in hints.ROWS.items():
        with pytest.raises(AttributeError) as told:
            getattr(table.scan(), name)
        assert str(told.value) == f"A read has no {name!r}; instead: {instead}."
        for call in re.findall(r"(?<![.\w])((?:to_|head|count|batches)[a-z_]*)\(", instead):
            assert callable(getattr(hoodoo.Scan, call)), call


@pytest.mark.parametrize("name", hints.MODULE)
def test_a_hint_of_the_module_names_what_there_is(name: str) -> None:
    with pytest.raises(AttributeError, match=f"{name}'; instead: hoodoo"):
        getattr(hoodoo, name)
    for call in re.findall(r"hoodoo\.([a-z]+)\(", hints.MODULE[name]):
        assert call in hoodoo.__all__


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda table: table.upserts, "did you mean 'upsert'"),
        (lambda table: table.insertOverwrite, "did you mean 'insert_overwrite'"),
        (lambda table: table.scan().to_panda, "did you mean 'to_pandas'"),
        (lambda table: table.scan().toPolars, "did you mean 'to_polars'"),
        (lambda table: table.changes("earliest").filter, "scan(where=...)"),
        (lambda table: table.maintenance.vacuum, "table.maintenance has no 'vacuum'; instead: maintenance.clean()"),
        (lambda table: table.alter.addColumn, "did you mean 'add_column'"),
        (lambda table: table.savepoints.creat, "did you mean 'create'"),
        (lambda table: table.merge(ROWS).whenMatchedUpdateAll, "did you mean 'when_matched_update_all'"),
        (lambda table: table.merge(ROWS).excute, "did you mean 'execute'"),
        (lambda _: hoodoo.crate, "did you mean 'create'"),
        (lambda _: hoodoo.PredicatError, "did you mean 'PredicateError'"),
    ],
)
def test_a_typo_in_a_name_leads_to_the_name(table: hoodoo.Table, ask: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(words)):
        ask(table)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("add_column", "alter.add_column(...)"),
        ("clean", "maintenance.clean(...)"),
        ("transforms", "inspect.transforms"),
    ],
)
def test_a_name_of_a_namespace_leads_to_its_call(table: hoodoo.Table, name: str, call: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(f"instead: {call}.")):
        getattr(table, name)
    assert name not in dir(table)


def test_a_read_still_pickles_and_says_what_it_has_not(table: hoodoo.Table) -> None:
    scan = table.scan()
    assert not hasattr(scan, "no_such_name") and not hasattr(scan, "__array__")
    assert pickle.loads(pickle.dumps(scan.tasks()[0]))().num_rows == 2


# ---- arguments
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: t.merge(ROWS, "target.id = source.id"), "Rows match by the key columns"),
        (lambda t: t.merge(source=ROWS, predicate="x"), "rows match by the key columns"),
        (lambda t: t.merge(source=ROWS, source_alias="s"), "named source and target"),
        (lambda t: t.merge(df=ROWS), "did you mean 'source'"),
        (lambda t: t.upsert(ROWS, on=["id"]), "rows match by the key columns"),
        (lambda t: t.upsert(ROWS, mode="overwrite"), "insert_overwrite(rows) replaces partitions"),
        (lambda t: t.upsert(df=ROWS), "did you mean 'data'"),
        (lambda t: t.upsert(ROWS, column=["n"]), "did you mean 'columns'"),
        (lambda t: t.upsert(ROWS, schema_mode="merge"), "did you mean 'evolve'"),
        (lambda t: t.insert(ROWS, on_conflict="ignore"), "did you mean 'existing'"),
        (lambda t: t.update(updates={"n": "1"}), "did you mean 'set'"),
        (lambda t: t.update({"n": "1"}, predicate="n = 1"), "did you mean 'where'"),
        (lambda t: t.delete(predicate="n = 1"), "did you mean 'where'"),
        (lambda t: t.scan(filter="n = 1"), "did you mean 'where'"),
        (lambda t: t.scan(version=1), "did you mean 'as_of'"),
        (lambda t: t.scan(limit=3), "scan(...).head(rows)"),
        (
            lambda t: t.scan(["n"], "n = 1", 1, False, False, False, "current", 7),
            "scan() got 8 arguments by position: expected at most 1 (columns). Pass the other arguments by name: where",
        ),
        (lambda t: t.changes(starting_version=1), "did you mean 'since'"),
        (lambda t: t.history(limit=3), "did you mean 'newest'"),
        (lambda t: t.restore(version=1), "did you mean 'to'"),
        (lambda t: t.maintenance.cluster(columns=["n"]), "did you mean 'sort_by'"),
        (lambda t: t.maintenance.cluster(z_order_columns=["n"]), "did you mean 'sort_by'"),
        (lambda t: t.alter.rename_column("n", new_name="m"), "did you mean 'to'"),
        (lambda t: t.scan().head(limit=3), "did you mean 'rows'"),
        (lambda t: hoodoo.open(t.path, storage_options={}), "did you mean 'storage'"),
        (lambda t: hoodoo.open(t.path, version=1), "hoodoo.open(path).scan(as_of=version)"),
        (lambda t: hoodoo.create(f"{t.path}2", SCHEMA, keys="id"), "did you mean 'key'"),
        (lambda t: hoodoo.create(f"{t.path}2", SCHEMA, key="id", partitionBy="n"), "Did you mean 'partition_by'"),
        (lambda t: hoodoo.create(f"{t.path}2", SCHEMA, key="id", partition_cols=["n"]), "Did you mean 'partition_by'"),
    ],
)
def test_an_argument_of_another_library_leads_to_ours(
    table: hoodoo.Table, call: Callable[[Any], Any], words: str
) -> None:
    """It was a bare TypeError."""
    with pytest.raises(hoodoo.OptionError) as told:
        call(table)
    assert words in told.value.message
    assert table.cursor.seq == 2 and not Path(f"{table.path}2").exists()


def test_a_call_says_what_it_needs_and_was_not_given(table: hoodoo.Table) -> None:
    untyped: Any = table
    with pytest.raises(hoodoo.OptionError, match="savepoints.create.. needs the argument 'name'"):
        untyped.savepoints.create()
    with pytest.raises(
        hoodoo.OptionError, match="changes.. needs the argument 'since': a position .* since=\"earliest\""
    ):
        untyped.changes()
    with pytest.raises(hoodoo.OptionError, match="create.. needs the argument 'key': the columns that identify a row"):
        untyped_create: Any = hoodoo.create
        untyped_create("never", {"id": "int"})
    assert list(inspect.signature(hoodoo.Table.merge).parameters) == ["self", "source"]
    assert hoodoo.create.__name__ == "create"


# ---- values and columns
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: t.upsert(ROWS, merge="keep_nonnull"), "Did you mean 'keep_non_null'?"),
        (lambda t: t.upsert(ROWS, merge=lambda stored, newer: newer), "hoodoo.CustomMerge(function)"),
        (lambda t: t.upsert(ROWS, missing="nul"), "Did you mean 'null'?"),
        (lambda t: t.upsert(ROWS, new_keys="skip"), "Did you mean 'ignore'?"),
        (lambda t: t.insert(ROWS, existing="ignore"), "Did you mean 'keep'?"),
        (lambda t: t.insert(ROWS, existing="error"), "Did you mean 'fail'?"),
        (lambda t: t.compact(strategy="logsize"), "Did you mean 'log_size'?"),
        (lambda t: hoodoo.create(f"{t.path}2", SCHEMA, key="id", type="mor"), "Did you mean 'merge_on_read'?"),
        (lambda t: hoodoo.create(f"{t.path}2", SCHEMA, key="id", type="COPY_ON_WRITE"), "Did you mean 'copy_on_write'"),
        (lambda t: t.set_options(retain_hour=1), "Did you mean 'retain_hours'?"),
        (lambda t: t.scan(columns=["statuss"]), "did you mean status?"),
        (lambda t: t.scan(columns="status"), "Write columns=['status']"),
        (lambda t: t.scan(columns=["nothing_like_it"]), "expected one of: id, status, n, ts."),
        (lambda t: t.get(["a"], columns=["Status"]), "did you mean status?"),
        (lambda t: t.changes("earliest", columns=["statuss"]), "did you mean status?"),
        (lambda t: t.update({"statuss": "n"}), "did you mean status?"),
        (lambda t: t.maintenance.cluster(sort_by=["statuss"]), "did you mean status?"),
        (lambda t: t.insert(ROWS, sort_by=["statuss"], bulk=True), "did you mean status?"),
        (lambda t: t.alter.drop_column("statuss"), "did you mean status?"),
        (lambda t: t.alter.rename_column("statuss", "s"), "did you mean status?"),
        (lambda t: t.alter.widen_column("statuss", "string"), "did you mean status?"),
        (lambda t: t.alter.move_column("n", after="statuss"), "did you mean status?"),
        (lambda t: t.upsert([{"id": "a", "statuss": "x"}], columns=["status"]), "did you mean statuss?"),
        (lambda t: t.upsert([{**ROWS[0], "statuss": "x"}]), "did you mean status?"),
        (
            lambda t: t.upsert([{"id": "a", "Status": "x", "n": 1, "ts": 1}]),
            "Column 'status' (a table column) is not in the batch",
        ),
        (lambda t: t.merge(ROWS).when_matched_update({"statuss": "'x'"}).execute(), "did you mean status?"),
        (lambda t: hoodoo.create(f"{t.path}2", SCHEMA, key="Id"), "did you mean id?"),
        (lambda t: hoodoo.create(f"{t.path}2", SCHEMA, key="id", order_by="tss"), "did you mean ts?"),
    ],
)
def test_a_value_or_a_column_that_there_is_not_leads_to_the_nearest(
    table: hoodoo.Table, call: Callable[[Any], Any], words: str
) -> None:
    with pytest.raises(hoodoo.HoodooError) as told:
        call(table)
    assert words in told.value.message
    assert table.cursor.seq == 2 and not Path(f"{table.path}2").exists()


# ---- what contradicts
def test_nulls_for_what_is_missing_are_refused_where_stored_values_stay(table: hoodoo.Table) -> None:
    """`missing="null"` beside `columns=` was ignored without a word."""
    some = [{"id": "a", "status": "x"}]
    for columns in ("given", ["status"]):
        with pytest.raises(hoodoo.OptionError, match="missing='null' overwrites stored values with null, but columns"):
            table.upsert(some, missing="null", columns=columns)
    table.upsert(some, missing="null")
    assert table.get("a").to_pylist() == [{"id": "a", "status": "x", "n": None, "ts": None}]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("n = 1",), "delete(where='n = 1')"),
        (("a",), "delete(['a'])"),
        ((["a"], "where"), "keys or where=..., not both"),
        ((), "rows with the keys to delete, or a condition as where=..."),
    ],
)
def test_a_delete_that_means_two_things_deletes_nothing(table: hoodoo.Table, arguments: Any, words: str) -> None:
    data, *rest = arguments or (None,)
    with pytest.raises(hoodoo.OptionError) as told:
        table.delete(data, where="n = 1" if rest else None)
    assert words in told.value.message
    assert table.count() == 2


# ---- functions
def one(stored: pa.Table) -> dict[str, Any]:
    return {"n": stored["n"]}


@pytest.mark.parametrize("function", [one, lambda: {}, lambda stored, newer, more: {}])
def test_a_function_of_other_arguments_is_refused_before_it_is_called(table: hoodoo.Table, function: Any) -> None:
    with pytest.raises(hoodoo.OptionError, match="cannot be called with two positional arguments"):
        hoodoo.CustomMerge(function)
    if function is not one:
        with pytest.raises(hoodoo.OptionError, match="expected a function with one argument"):
            table.update(function)


def test_functions_with_defaults_and_of_other_kinds_are_taken(table: hoodoo.Table) -> None:
    class Merging:
        def __call__(self, stored: pa.Table, newer: pa.Table, factor: int = 2) -> dict[str, Any]:
            return {"n": newer["n"]}

    for function in (Merging(), lambda *tables: {"n": tables[1]["n"]}):
        assert table.upsert([{**ROWS[0], "n": 5}], merge=hoodoo.CustomMerge(function)).updated <= 1
    assert table.get("a")["n"].to_pylist() == [5]


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (
            lambda stored: {"n": 5},
            "for {} returned 5 for column 'n': expected an Arrow array. Convert a list with pa.array(...)",
        ),
        (lambda stored: {"nn": stored["n"]}, "for {} returned column 'nn'"),
        (lambda stored: {"n": stored["status"]}, "The function for {} returned this column."),
        (
            lambda stored: {"n": stored["n"][:0]},
            "returned 0 values of column 'n' for 1 rows: expected one value per row",
        ),
        (lambda stored: None, "The function for {} returned None"),
        (lambda stored: {"id": stored["status"]}, "for {} returned column 'id'. Column 'id' is a key column"),
    ],
)
def test_what_a_function_returns_is_told_in_its_own_words(
    table: hoodoo.Table, returned: Callable[[pa.Table], Any], words: str
) -> None:
    """A CustomMerge was told what "an update" cannot set, and to delete the rows."""
    with pytest.raises(hoodoo.ColumnError) as told:
        table.upsert([{**ROWS[0], "n": 5}], merge=hoodoo.CustomMerge(lambda stored, newer: returned(stored)))
    assert words.format("merge") in told.value.message
    assert "update" not in told.value.message and "Delete" not in told.value.message
    with pytest.raises(hoodoo.ColumnError) as told:
        table.update(returned, where="id = 'a'")
    assert words.format("set") in told.value.message
