"""Hints for names that other libraries use.

These names are never accepted as aliases, because their meanings differ in details.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeVar

from hoodoo.errors import OptionError
from hoodoo.nearest import find_nearest_name, join_names
from hoodoo.redact import printable

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=type)

_READS = "scan(columns=[...], where=...)"
TABLE: Mapping[str, str] = {
    # deltalake
    "optimize": "compact() and maintenance.cluster() once, or a worker (hoodoo worker PATH)",
    "z_order": "maintenance.cluster(sort_by=[...], order='zorder')",
    "vacuum": "maintenance.clean() deletes files that no snapshot needs; a worker calls it automatically",
    "version": "cursor is the position of the newest slot",
    "get_latest_version": "cursor is the position of the newest slot",
    "to_pandas": "scan().to_pandas()",
    "to_arrow": "scan().to_arrow()",
    "to_polars": "scan().to_polars()",
    "to_duckdb": "scan().to_duckdb()",
    "to_batches": "scan().batches()",
    "to_pyarrow_table": "scan().to_arrow()",
    "to_pyarrow_dataset": "scan().to_dataset()",
    "to_dataset": "scan().to_dataset()",
    "to_spark": "scan().to_spark(spark)",
    "diff": "changes(a, b, versions='diff')",
    "load_cdf": "changes(since)",
    "read_cdf": "changes(since)",
    "table_changes": "changes(since)",
    "load_version": "scan(as_of=...)",
    "load_as_version": "scan(as_of=...)",
    "load_with_datetime": "scan(as_of=...)",
    "as_of": "scan(as_of=...)",
    "time_travel": "scan(as_of=...)",
    "alter_columns": "alter.add_column(...), alter.rename_column(...) and the other methods of alter",
    "add_columns": "alter.add_column(name, type)",
    "with_columns": "update({column: expression}), or alter.add_column(name, type) for a new one",
    "add_constraint": "table.set_checks({name: condition})",
    "drop_constraint": "set_checks({...}) with the remaining checks",
    "set_table_properties": "set_options(...)",
    "create_checkpoint": "nothing: writes create checkpoints automatically",
    "cleanup_metadata": "maintenance.archive(); a worker calls it automatically",
    "repair": "maintenance.salvage(), for damaged files that verify() reports",
    "metadata": "key, partition_by, order_by, schema, options and type",
    "protocol": "type and options",
    "detail": "type, key, partition_by, order_by, schema, options and maintenance.services(); hoodoo info PATH",
    "partitions": "inspect.files() returns the partition of each file group",
    "file_uris": "inspect.files()",
    "get_add_actions": "inspect.files()",
    "table_uri": "path",
    "restore_to": "restore(position)",
    "rollback_to": "restore(position)",
    "is_deltatable": "hoodoo.open(path), which raises TableNotFound",
    "generate": "nothing: Hudi's readers read the folder directly; other readers need export(...)",
    "to_delta": "export(delta=True)",
    "to_iceberg": "export(iceberg=True)",
    # pandas, polars, DuckDB
    "select": "scan(columns=[...])",
    "filter": "scan(where=...)",
    "where": "scan(where=...)",
    "query": "scan(where=...)",
    "loc": "get(keys), or scan(where=...)",
    "iloc": "head(), or scan().to_pandas()",
    "read": _READS,
    "collect": "scan().to_polars()",
    "lazy": "scan().to_polars(lazy=True)",
    "fetchall": "scan().to_arrow().to_pylist()",
    "to_pylist": "scan().to_arrow().to_pylist()",
    "to_dicts": "scan().to_arrow().to_pylist()",
    "to_csv": "scan().to_pandas().to_csv(...), or hoodoo scan PATH --output FILE",
    "to_parquet": "hoodoo scan PATH --output FILE",
    "columns": "schema.names",
    "dtypes": "schema.types",
    "shape": "count(), and schema.names",
    "num_rows": "count()",
    "rows": "scan(), or count()",
    "limit": "head(rows)",
    "sample": "head(rows)",
    "show": "head(rows)",
    "describe": "scan().to_pandas().describe()",
    "drop_duplicates": "nothing: each key has one row in its partition; upsert keeps the newest row of a batch",
    "dropna": "delete(where='column IS NULL')",
    "fillna": "update({column: value}, where='column IS NULL')",
    "assign": "update({column: expression})",
    "drop": "hoodoo.drop(path) for the table, alter.drop_column(name) for a column, or delete(keys) for rows",
    "rename": "alter.rename_column(name, to)",
    "astype": "alter.widen_column(name, type), or alter.retype_column(name, type, rewrite=True)",
    "alter_column_type": "alter.widen_column(name, type), or alter.retype_column(name, type, rewrite=True)",
    "append": "insert(rows), which rejects existing keys, or upsert(rows)",
    "bulk_insert": "insert(rows, bulk=True)",
    "add": "insert(rows), which rejects existing keys, or upsert(rows)",
    "extend": "insert(rows), which rejects existing keys, or upsert(rows)",
    "write": "upsert(rows), insert(rows) or insert_overwrite(rows)",
    "save": "upsert(rows), insert(rows) or insert_overwrite(rows)",
    "overwrite": "insert_overwrite(rows) replaces the partitions of the rows, or all rows with whole_table=True",
    "check": "verify() checks all files, set_checks({name: condition}) sets conditions for rows",
    "cast": "alter.widen_column(name, type) or alter.retype_column(name, type, rewrite=True)",
    "replace": "insert_overwrite(rows), or upsert(rows)",
    "truncate": "delete_partitions([...]), or insert_overwrite([], whole_table=True)",
    "merge_into": "upsert(rows), or merge(rows) with clauses",
    "delete_where": "delete(where=...)",
    "update_where": "update(set, where=...)",
    "sql": "hoodoo.sql('SELECT ... FROM t', t=table) by DuckDB, or hoodoo.sql(spark, text)",
    # Iceberg, Hudi
    "snapshots": "history()",
    "log": "history()",
    "current_snapshot": "cursor",
    "expire_snapshots": "maintenance.clean(); a worker calls it automatically",
    "rewrite_data_files": "compact() and maintenance.cluster()",
    "remove_orphan_files": "maintenance.sweep()",
    "update_schema": "alter([...])",
    "evolve": "alter([...]), or upsert(rows, evolve=True)",
    "set_properties": "set_options(...)",
    "properties": "options",
    "tag": "savepoints.create(name)",
    "savepoint": "savepoints.create(name)",
    "create_tag": "savepoints.create(name)",
    "clustering": "maintenance.cluster(sort_by=[...])",
    "compaction": "compact()",
    "refresh": "nothing: every call reads the newest slot first",
    "reload": "nothing: every call reads the newest slot first",
    "commit": "nothing: every write is committed automatically",
    "close": "nothing: a table keeps no open resources",
    "undo": "restore(position), where history() lists the positions",
    "load": "upsert(file), or upsert(rows)",
    "patch": "upsert(rows, columns='given')",
    "apply": "upsert(rows), or merge(rows) with clauses",
    "sort": "scan().to_polars(lazy=True).sort(...), or maintenance.cluster(sort_by=[...]) for the files",
    "exists": "get(keys), which returns the rows of existing keys",
    **dict.fromkeys(("groupby", "group_by", "aggregate", "agg", "sum", "mean", "join"), "scan().to_polars(lazy=True)"),
    "worker": "hoodoo.Worker([table]).run(), or hoodoo worker PATH",
    "sync": "register('namespace.table', catalog=...) for a Hive metastore or Glue",
    "hive_sync": "register('namespace.table', catalog=...)",
    "register_table": "register('namespace.table', catalog=...)",
    "get_file_slices": "inspect.files()",
    "read_snapshot": "scan()",
    "read_incremental_records": "incremental(since)",
}
"""Suggested calls by unknown attribute name of a table."""

_ENGINE = "to_polars(lazy=True) or to_duckdb(), which read only the necessary files and columns"
ROWS: Mapping[str, str] = {
    **dict.fromkeys(("where", "filter", "query"), "the argument where: scan(where=...)"),
    **dict.fromkeys(("select", "project"), "the argument columns: scan(columns=[...])"),
    **dict.fromkeys(("limit", "take", "show", "sample", "slice", "first"), "head(rows)"),
    **dict.fromkeys(("collect", "pl"), "to_polars()"),
    **dict.fromkeys(("lazy", "to_lazy", "scan"), "to_polars(lazy=True)"),
    **dict.fromkeys(("df", "fetchdf", "toPandas"), "to_pandas()"),
    **dict.fromkeys(("arrow", "to_table", "read_all", "to_pyarrow_table", "toArrow"), "to_arrow()"),
    **dict.fromkeys(("fetchall", "to_pylist", "to_dicts", "to_list"), "to_arrow().to_pylist()"),
    **dict.fromkeys(("to_batches", "to_reader", "iter_batches", "iter_slices"), "batches()"),
    **dict.fromkeys(("sort", "sort_values", "order_by", "group_by", "groupby", "agg", "join", "merge"), _ENGINE),
    **dict.fromkeys(("sum", "mean", "aggregate", "min", "max"), _ENGINE),
    **dict.fromkeys(("columns",), "schema.names"),
    **dict.fromkeys(("shape", "num_rows", "height", "size"), "count()"),
    **dict.fromkeys(("to_csv", "to_parquet", "write_csv", "write_parquet"), "hoodoo scan PATH --output FILE"),
}
"""Suggested calls by unknown attribute name of a read."""

MODULE: Mapping[str, str] = {
    "DeltaTable": "hoodoo.open(path), or hoodoo.create(path, schema, key=...)",
    "HudiTable": "hoodoo.open(path)",
    "HudiTableBuilder": "hoodoo.open(path)",
    "write_deltalake": "hoodoo.open(path).upsert(rows) or .insert(rows)",
    "write": "hoodoo.open(path).upsert(rows) or .insert(rows)",
    "exists": "hoodoo.open(path), which raises TableNotFound",
    "create_table": "hoodoo.create(path, schema, key=...)",
    **dict.fromkeys(("drop_table", "delete_table", "remove"), "hoodoo.drop(path)"),
    "connect": "hoodoo.open(path)",
    **dict.fromkeys(
        ("read", "read_table", "read_parquet", "read_delta", "read_hudi", "scan", "scan_delta", "scan_parquet"),
        "hoodoo.open(path).scan()",
    ),
    **dict.fromkeys(("load", "load_table", "get_table"), "hoodoo.open(path)"),
}
"""Suggested calls by unknown name in the module `hoodoo`."""

_BY_KEY = "rows match by the key columns and partition columns of the table"
_WRITES = (
    "upsert(rows) replaces rows of existing keys, insert(rows) adds new keys, insert_overwrite(rows) replaces "
    "partitions, or all rows with whole_table=True"
)
_CREATES = "if_exists='open' opens an existing table; the default raises TableExists"
_SENTENCES: Mapping[tuple[str, str], str] = {
    **{("merge", word): f"{_BY_KEY}; pass other conditions as where= of a clause" for word in ("predicate", "on")},
    **{("merge", word): f"{_BY_KEY}; pass other conditions as where= of a clause" for word in ("condition", "how")},
    **{("merge", f"{word}_alias"): "the two rows are named source and target" for word in ("source", "target")},
    **{("upsert", word): _BY_KEY for word in ("on", "key", "keys", "predicate", "primary_key")},
    **{(call, word): _WRITES for call in ("upsert", "insert") for word in ("mode", "overwrite", "how", "save_mode")},
    **{("scan", word): "scan(...).head(rows)" for word in ("limit", "n", "rows", "n_rows", "nrows", "head")},
    **{("scan", word): _ENGINE for word in ("order_by", "sort", "sort_by")},
    ("head", "where"): "scan(where=...).head(rows)",
    ("insert_overwrite", "predicate"): "delete(where=...), then upsert(rows)",
    (
        "insert_overwrite",
        "mode",
    ): "whole_table=True replaces all rows; the default replaces the partitions in the batch",
    ("open", "version"): "hoodoo.open(path).scan(as_of=version)",
    ("open", "as_of"): "hoodoo.open(path).scan(as_of=...)",
    ("maintenance.clean", "dry_run"): "maintenance.services() shows what cleaning would delete",
    **{("create", word): _CREATES for word in ("mode", "exist_ok", "ignore_existing", "if_not_exists", "existing")},
}
"""Suggestions by call and unknown argument, for arguments without an equivalent argument."""

_NEEDED: Mapping[str, str] = {
    "since": "a position such as a cursor, a slot or '1 day ago'; since=\"earliest\" reads all changes",
    "key": "the columns that identify a row",
}
"""Descriptions of required arguments, by argument name."""

_ARGUMENTS: Mapping[str, str] = {
    **dict.fromkeys(("predicate", "filter", "filters", "condition", "query", "expr", "filter_expr"), "where"),
    **dict.fromkeys(
        ("version", "timestamp", "version_as_of", "timestamp_as_of", "snapshot", "snapshot_id", "asof", "at"),
        "as_of at to position",
    ),
    **dict.fromkeys(("df", "dataframe", "rows", "records", "table", "batch", "source", "frame"), "data source schema"),
    **dict.fromkeys(("data", "new_data", "other", "updates", "new_values", "values"), "set source"),
    **dict.fromkeys(("storage_options", "s3_options", "fs_options"), "storage"),
    **dict.fromkeys(("select", "usecols", "column", "cols", "fields", "projection"), "columns"),
    **dict.fromkeys(("starting_version", "start_version", "starting_timestamp", "start", "begin", "from_"), "since"),
    **dict.fromkeys(("ending_version", "end_version", "ending_timestamp", "end", "stop"), "until"),
    **dict.fromkeys(("limit", "n", "count", "max_rows", "n_rows", "head"), "newest limit rows"),
    **dict.fromkeys(("schema_mode", "merge_schema", "mergeSchema", "schema_evolution"), "evolve"),
    **dict.fromkeys(("if_exists", "on_conflict", "ignore_existing", "if_not_exists"), "existing"),
    **dict.fromkeys(("retention_hours", "hours"), "retain_hours older_than_hours"),
    **dict.fromkeys(("old_name", "old", "from_name"), "name"),
    **dict.fromkeys(("new_name", "new"), "to"),
    **dict.fromkeys(("dtype", "data_type", "new_type"), "type"),
    **dict.fromkeys(("txn", "txn_id", "commit_properties"), "transaction"),
    **dict.fromkeys(("uri", "table_uri", "location", "base_path"), "path folder"),
    **dict.fromkeys(("keys", "primary_key", "record_key", "recordkey", "id", "on"), "key keys"),
    **dict.fromkeys(("out", "o", "outfile", "output_file", "dest"), "output"),
    **dict.fromkeys(("partition_cols", "partitionby", "partition_columns", "partitions"), "partition_by"),
    **dict.fromkeys(("precombine", "precombine_field", "ordering"), "order_by"),
    **dict.fromkeys(("columns", "z_order_columns", "by", "sort"), "sort_by"),
}
"""Equivalent hoodoo arguments by argument name in other libraries, best first."""


def hint_for(name: str, kind: type, what: str, instead: Mapping[str, str]) -> str:
    """Return an error message that suggests a similar name.

    Args:
        name: The unknown name.
        kind: The class of the object.
        what: The noun for the object in the message, such as 'table'.
        instead: Suggested calls by unknown name.
    """
    said = f"{what if '.' in what else f'A {what}'} has no {name!r}"
    if name.startswith("_"):
        return f"{said}."
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    if found := instead.get(name) or instead.get(plain):
        return f"{said}; instead: {found}."
    near = find_nearest_name(plain, [one for one in dir(kind) if one[0] != "_"])
    return said + (f"; did you mean {near!r}?" if near else ".")


def takes(call: Callable[P, T], called: str = "") -> Callable[P, T]:
    """Decorate a function to suggest names for unknown arguments.

    The function raises OptionError for unknown, surplus and missing arguments. `called` is the name of the function in
    these errors, if users call it by another name than `call.__name__`.
    """
    title = called or call.__name__
    signature = inspect.signature(call)
    known = tuple(name for name in signature.parameters if name != "self")
    kinds = {one.kind for one in signature.parameters.values()}
    is_open = inspect.Parameter.VAR_KEYWORD in kinds
    most = sum(one.kind is one.POSITIONAL_OR_KEYWORD for one in signature.parameters.values())
    plain = {name: one for name, one in signature.parameters.items() if one.kind is not one.VAR_KEYWORD}
    required = {name for name, one in plain.items() if one.default is one.empty}

    @functools.wraps(call)
    def checked(*given: P.args, **named: P.kwargs) -> T:
        unknown = [name for name in named if name not in known]
        meant = next((name for name in unknown if (title, name) in _SENTENCES), None)
        if meant is not None:
            raise _no_argument(title, meant, [])
        if unknown and (not is_open or required - {*named} - {*list(signature.parameters)[: len(given)]}):
            raise _no_argument(title, unknown[0], [name for name in plain if name not in named])
        if len(given) > most:
            names = tuple(name for name in plain if name != "self")
            is_method = "self" in plain
            raise _too_many(title, names, len(given) - is_method, most - is_method)
        lacking = [name for name in [*plain][len(given) :] if name in required and name not in named]
        if lacking:
            raise _lacks(title, lacking[0])
        return call(*given, **named)

    return checked


def suggest_for_methods(kind: C) -> C:
    """Decorate the public methods of a class with `takes`.

    A class whose objects are a namespace of a table, such as `table.alter`, has its name in the attribute `NAMESPACE`.
    An unknown attribute of a namespace leads to an error that suggests a similar method.
    """
    namespace = vars(kind).get("NAMESPACE", "")
    if namespace:

        def suggest(_: object, name: str) -> None:
            raise AttributeError(hint_for(name, kind, f"table.{namespace}", TABLE))

        setattr(kind, "__getattr__", suggest)  # noqa: B010 hidden from type checkers
    for name, member in list(vars(kind).items()):
        if not inspect.isfunction(member):
            continue
        if namespace and name == "__call__":
            setattr(kind, name, takes(member, namespace))
        elif name[0] != "_":
            setattr(kind, name, takes(member, f"{namespace}.{name}" if namespace else name))
    return kind


def find_similar_argument(word: str, known: Sequence[str]) -> str | None:
    """Find the argument that is most similar to an unknown argument."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower()
    ours = _ARGUMENTS.get(word) or _ARGUMENTS.get(plain, "")
    return next((one for one in ours.split() if one in known), None) or find_nearest_name(plain, known)


def _no_argument(call: str, word: str, known: list[str]) -> OptionError:
    known = [name for name in known if name != "self"]
    said = f"{call}() has no argument {printable(word)}"
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower()
    if sentence := _SENTENCES.get((call, plain)):
        return OptionError(f"{said}; instead: {sentence}.", option=word)
    if near := find_similar_argument(word, known):
        return OptionError(f"{said}; did you mean {near!r}?", option=word)
    return OptionError(
        f"{said}; {'its arguments are ' + join_names(known) if known else 'it has no arguments'}.", option=word
    )


def _lacks(call: str, name: str) -> OptionError:
    what = _NEEDED.get(name, "")
    return OptionError(f"{call}() needs the argument {name!r}{what and f': {what}'}.", option=name)


def _too_many(call: str, known: tuple[str, ...], given: int, most: int) -> OptionError:
    sentence = _SENTENCES.get((call, "predicate")) if given > 1 else None
    more = f" {sentence[0].upper()}{sentence[1:]}." if sentence else ""
    first, named = known[:most], known[most:]
    return OptionError(
        f"{call}() got {given} arguments by position: expected "
        f"{f'at most {most} ({join_names(first)})' if first else 'none'}."
        f"{f' Pass the other arguments by name: {join_names(named)}.' if named else ''}{more}",
        option=call,
    )


__all__ = ["MODULE", "ROWS", "TABLE", "find_similar_argument", "suggest_for_methods", "hint_for", "takes"]
