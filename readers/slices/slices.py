"""Reader for file slices: base files with their logs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import CorruptTable, UnsupportedTable
from hoodoo.format.keys import compute_virtual_keys
from hoodoo.format.log.block import DataBlock, DeleteBlock, RollbackBlock, decode_logs, iter_log, rolled_back
from hoodoo.format.names import META_COLUMNS, PARTITION_PATH, RECORD_KEY, LogFileName, parse_data_file
from hoodoo.format.parquet import base_file
from hoodoo.format.parquet.statistics import Stats, make_comparable
from hoodoo.merge.kernels import KeyedChanges, find_indexes
from hoodoo.merge.policy import LATER_WINS
from hoodoo.storage.spool import IN_MEMORY
from hoodoo.storage.store import Store, digest
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import LOG, DataFile
from hoodoo.timeline.views.view import FileGroup

_META = frozenset(META_COLUMNS)
_DECODED_TOGETHER_MAX = 16 << 20  # maximum total bytes of logs that are decoded together
_REMEDY = "Restore it from a backup, or run maintenance.salvage() (hoodoo salvage), which keeps all undamaged rows."


def columns_to_decode(config: TableConfig, columns: Iterable[str], merging: bool) -> list[str]:
    wanted = list(dict.fromkeys(columns))
    if merging:
        wanted += [name for name in config.merge_policy.needed_columns if name not in wanted]
    return wanted


def schema_of(config: TableConfig, columns: Iterable[str]) -> pa.Schema:
    return pa.schema([config.file_schema.field(name) for name in columns])


def read_base(
    store: Store,
    config: TableConfig,
    file: DataFile,
    schema: pa.Schema,
    may_match: Callable[[Stats, int], bool] | None = None,
    verified: bool = False,
) -> pa.Table:
    """Read the rows of a base file.

    The types come from the table, even if the file stores other types. Only row groups for which `may_match` returns
    True are read. File size and page checksums are always checked. If `verified` is True, the digest is also checked,
    which reads the whole file.
    """
    decode_args, stored = (
        (may_match, get_expected_footer(file), config.resolution(file)),
        _columns_to_decode(config, schema),
    )
    with opened(store, file) as source:
        if verified and file.digest:
            content = source.read_buffer()
            _require_content(file.path, content, file.size, file.digest)
            return _add_record_keys(
                config, base_file.read_base_file(pa.BufferReader(content), file.path, stored, *decode_args), schema
            )
        return _add_record_keys(config, base_file.read_base_file(source, file.path, stored, *decode_args), schema)


def read_matching_rows(
    store: Store,
    config: TableConfig,
    file: DataFile,
    schema: pa.Schema,
    seen: Sequence[str],
    condition: Callable[[pa.Table], np.ndarray],
    may_match: Callable[[Stats, int], bool] | None = None,
) -> tuple[pa.Table, np.ndarray]:
    """Read the matching rows of a base file.

    Their positions in the file are also returned. `seen` are the columns that the condition uses. `condition` returns
    the positions of the matching rows in ascending order. The other arguments are as in `read_base`.
    """
    if config.virtual_keys:
        rows_with_keys = read_base(store, config, file, schema)
        positions = condition(rows_with_keys)
        return rows_with_keys.take(pa.array(positions)), positions
    key = config.key[0]
    twin = config.key_is_record_key and not file.external and {key, RECORD_KEY} <= {*schema.names} - {*seen}
    decoded = pa.schema([field for field in schema if not (twin and field.name == key)])
    with opened(store, file) as source:
        groups = base_file.RowGroupReader(
            source, file.path, decoded, get_expected_footer(file), config.resolution(file)
        )
        rows, positions = groups.read_matching_rows(seen, condition, may_match)
    if twin:  # both columns contain the same string, so it is decoded once
        rows = rows.add_column(schema.get_field_index(key), schema.field(key), rows[RECORD_KEY])
    return rows, positions


def read_base_batches(
    store: Store,
    config: TableConfig,
    file: DataFile,
    schema: pa.Schema,
    rows: int,
    may_match: Callable[[Stats, int], bool] | None = None,
) -> Iterator[pa.Table]:
    decode_args, stored = (
        (may_match, get_expected_footer(file), config.resolution(file)),
        _columns_to_decode(config, schema),
    )
    with opened(store, file) as source:
        for part in base_file.read_in_batches(source, file.path, stored, rows, *decode_args):
            yield _add_record_keys(config, part, schema)


def _columns_to_decode(config: TableConfig, schema: pa.Schema) -> pa.Schema:
    # If files do not store record keys, the key columns are decoded too.
    if not config.virtual_keys or schema.get_field_index(RECORD_KEY) < 0:
        return schema
    missing = [name for name in config.key if schema.get_field_index(name) < 0]
    return pa.schema([*schema, *schema_of(config, missing)])


def _add_record_keys(config: TableConfig, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    # The keys are computed only if files do not store them.
    if not config.virtual_keys or (index := schema.get_field_index(RECORD_KEY)) < 0:
        return rows
    keys = compute_virtual_keys(rows, config.key)
    return rows.set_column(index, schema.field(index), keys.cast(schema.field(index).type)).select(schema.names)


@contextmanager
def opened(store: Store, file: DataFile) -> Iterator[pa.NativeFile]:
    try:
        with store.open_input(file.path) as source:
            _require_size(file, source)
            yield source
    except FileNotFoundError:
        raise _missing_file_error(file.path) from None


def get_expected_footer(file: DataFile, schema: pa.Schema | None = None) -> base_file.ExpectedFooter | None:
    """Return the expected footer of a base file.

    It has the row count and the columns. `schema` contains all columns. Callers pass it if the file may be damaged.
    """
    if file.external:
        return None
    return base_file.ExpectedFooter(file.rows, _META | file.stats.keys(), schema)


def _require_size(file: DataFile, source: pa.NativeFile) -> None:
    if file.size and source.size() != file.size:
        raise CorruptTable(
            f"File {file.path} is {source.size()} bytes long, but the commit recorded {file.size}. {_REMEDY}",
            file=file.path,
        )


def _missing_file_error(path: str) -> CorruptTable:
    return CorruptTable(
        f"File {path} is missing. {_REMEDY}",
        file=path,
    )


def read_verified_file(store: Store, file: DataFile, in_memory: int = IN_MEMORY) -> bytes | pa.Buffer:
    """Read and verify a whole data file.

    Files of other engines lack a digest. If the file is longer than `in_memory` bytes, no copy of it is held in memory.
    """
    size = 0 if file.blocks else file.size  # later commits may have appended to the file
    return read_whole_file(store, file.path, size, file.digest, in_memory)


def read_bytes(store: Store, file: DataFile) -> pa.Buffer:
    try:
        return pa.py_buffer(store.get(file.path) if file.size <= IN_MEMORY else store.mapped(file.path))
    except FileNotFoundError:
        raise _missing_file_error(file.path) from None


def read_whole_file(store: Store, path: str, size: int, sum_: str, in_memory: int = IN_MEMORY) -> bytes | pa.Buffer:
    """Read and verify a whole file.

    A size of 0 and a digest of '' are unknown, and not checked.
    """
    try:
        data = store.get(path) if size <= in_memory else store.mapped(path, in_memory)
    except FileNotFoundError:
        raise _missing_file_error(path) from None
    _require_content(path, data, size, sum_)
    return data


def _require_content(path: str, data: bytes | pa.Buffer, size: int, sum_: str) -> None:
    if size and len(data) != size or sum_ and digest(data) != sum_:
        raise CorruptTable(
            (
                f"File {path} is damaged: its content does not match the size and digest that the commit "
                "recorded. Restore it from a backup, or run `hoodoo salvage`, which keeps all undamaged rows."
            ),
            file=path,
        )


def read_log(
    store: Store,
    config: TableConfig,
    file: DataFile,
    schema: pa.Schema,
    by_row: bool = False,
    undone: frozenset[str] = frozenset(),
) -> Iterator[KeyedChanges]:
    """Read the changes in a log file.

    The schema must include record key and ordering columns. `by_row` adds the positions of the base rows that the log
    records. Blocks of the instants in `undone` are skipped, because another log rolled them back.
    """
    data, resolution, counts = memoryview(read_verified_file(store, file)), config.resolution(file), None
    if file.blocks:
        rolled_back_instants = undone | rolled_back(data)

        def counts(instant: str) -> bool:
            return file.contains_log_blocks_of(instant) and instant not in rolled_back_instants

    try:
        names = resolution.names_of(_columns_to_decode(config, schema).names)
        for block in iter_log(data, columns=names, strict=bool(file.digest), positions=by_row, counts=counts):
            yield as_changes(block, schema, config, file)
    except CorruptTable as problem:
        raise _unreadable_log_error(problem, file) from problem


def _unreadable_log_error(problem: CorruptTable, file: DataFile) -> CorruptTable:
    # The bytes of the log file did not change.
    return CorruptTable(
        f"File {file.path} cannot be read: {problem.message.rstrip('.')}. Run `hoodoo salvage`, or "
        "Table.maintenance.salvage(), which keeps all undamaged rows. verify() shows all damage.",
        **{**problem.details, "file": file.path},
    )


def as_changes(
    block: DataBlock | DeleteBlock | RollbackBlock, schema: pa.Schema, config: TableConfig, file: DataFile
) -> KeyedChanges:
    if isinstance(block, DataBlock):
        resolution, none = config.resolution(file), np.zeros(len(block.rows), bool)
        # as Spark's MERGE INTO writes them
        set_here = tuple(resolution.asked(block.rows.schema.names)) if block.partial else None
        rows = _add_record_keys(
            config, resolution.to_requested_columns(block.rows, list(_columns_to_decode(config, schema))), schema
        )
        return KeyedChanges(rows, none, none, set_here, at=block.positions)
    if isinstance(block, DeleteBlock):
        return _convert_delete_block(block, schema, config)
    raise UnsupportedTable(
        f"File {file.path} contains a rollback block, which is invalid in tables of version 8 and 9. Compact the table "
        "with Apache Hudi first.",
        file=file.path,
    )


def _convert_delete_block(block: DeleteBlock, schema: pa.Schema, config: TableConfig) -> KeyedChanges:
    columns: dict[str, pa.Array] = {RECORD_KEY: block.keys.cast(pa.string())}
    ordered = False
    if block.ordering and (order_by := config.merge_policy.order_by):
        ordered = True
        if len(block.ordering) != len(order_by):
            raise UnsupportedTable(
                f"A delete of instant {block.instant} has {len(block.ordering)} ordering values: expected "
                f"{len(order_by)}, one for each ordering column ({', '.join(order_by)}). Compact the table with "
                "Apache Hudi first.",
                instant=block.instant,
            )
        for name, values in zip(order_by, block.ordering, strict=True):
            if schema.get_field_index(name) >= 0:
                columns[name] = values.cast(schema.field(name).type)
    rows = pa.table([columns.get(field.name, pa.nulls(len(block.keys), field.type)) for field in schema], schema=schema)
    return KeyedChanges(rows, np.ones(len(rows), bool), np.full(len(rows), not ordered), at=block.positions)


def read_logs(
    store: Store, config: TableConfig, group: FileGroup, schema: pa.Schema, keys: pa.Array | None = None
) -> list[KeyedChanges]:
    """Read the changes in the logs of a file group.

    They are in order of their instants. This is also the order of slots (protocol rule 4). The result is one
    KeyedChanges with one change per key. If a log contains a partial update, the result is one KeyedChanges per block.
    If `keys` is set, the result contains only changes of these record keys.
    """
    parts = read_log_blocks(store, config, group, schema)
    return config.merge_policy.one_per_key(parts if keys is None else [changes_of_keys(part, keys) for part in parts])


def read_log_blocks(
    store: Store, config: TableConfig, group: FileGroup, schema: pa.Schema, by_row: bool = False
) -> list[KeyedChanges]:
    """Read the log files of a file group block by block.

    Logs that change no column of `schema` are skipped. Small logs are decoded together.
    """
    files = [file for file in sort_logs_by_instant(group) if _changes_columns(config, file, schema)]
    blocks = None
    have_one_schema = len(files) > 1 and len({file.schema for file in files}) == 1
    if (
        have_one_schema
        and all(file.digest for file in files)
        and sum(file.size for file in files) <= _DECODED_TOGETHER_MAX
    ):
        contents = [read_verified_file(store, file) for file in files]
        with suppress(CorruptTable):  # reading the logs one by one finds the damaged log
            blocks = decode_logs(contents, config.resolution(files[0]).names_of(schema.names), by_row)
    if blocks is not None:
        return [as_changes(block, schema, config, files[0]) for block in blocks]
    undone = _rolled_back_instants(store, files)
    return [part for file in files for part in read_log(store, config, file, schema, by_row, undone)]


def _rolled_back_instants(store: Store, files: Sequence[DataFile]) -> frozenset[str]:
    # Only logs with archived commits are read. For commits in the timeline, the timeline records the rollback.
    archived = [file for file in files if file.blocks.startswith("<")]
    return frozenset().union(*(rolled_back(read_verified_file(store, file)) for file in archived))


def _changes_columns(config: TableConfig, file: DataFile, schema: pa.Schema) -> bool:
    # If hoodoo wrote a partial update, its statistics name all columns that it sets.
    if not file.partial or file.deletes:
        return True
    fixed = {RECORD_KEY, PARTITION_PATH, *config.key, *config.partition_by}
    sets = {*META_COLUMNS, *config.resolution(file).asked(file.stats)} - fixed
    return any(name in sets for name in schema.names)


def changes_of_keys(changes: KeyedChanges, keys: pa.Array) -> KeyedChanges:
    return changes.take(np.flatnonzero(among(changes.rows[RECORD_KEY], keys)))


def sort_logs_by_instant(group: FileGroup) -> list[DataFile]:
    return sorted((log.file for log in group.logs), key=_instant_and_version)


def _instant_and_version(file: DataFile) -> tuple[str, int]:
    parsed = parse_data_file(file.name)
    return (parsed.instant, parsed.version) if isinstance(parsed, LogFileName) else ("", 0)


def read_file_slice(
    store: Store,
    config: TableConfig,
    group: FileGroup,
    wanted: pa.Schema,
    verified: bool = False,
    keys: pa.Array | None = None,
    may_match: Callable[[Stats, int], bool] | None = None,
) -> pa.Table:
    """Read the current rows of a file slice.

    Its base file is merged with its logs. `wanted` has types of the file schema, or dictionaries of them.

    Args:
        store: The store of the table.
        config: The configuration of the table.
        group: The file group.
        wanted: The columns to return.
        verified: True also checks the base file's digest. Callers that rewrite the rows need this, so that they do not
            copy damage. Logs are always checked.
        keys: The record keys of the rows to return. Row groups without these keys are not decoded.
        may_match: Function that decides which row groups of the base file are read. The caller needs no other row
            group. If logs contain partial updates without row positions, all row groups are read.
    """
    if not group.logs and group.base and keys is None:
        return read_base(store, config, group.base.file, wanted, may_match, verified)
    if keys is None and has_row_positions(group):
        return _read_slice_by_position(store, config, group, wanted, verified, may_match)
    extra = [name for name in columns_to_decode(config, wanted.names, merging=True) if wanted.get_field_index(name) < 0]
    schema = pa.schema([*wanted, *schema_of(config, extra)])
    logs = read_logs(store, config, group, schema, keys)
    if any(changes.columns is not None or changes.unset for changes in logs):
        may_match = None
    if group.base is None:
        base = schema.empty_table()
    elif keys is None:
        base = read_base(store, config, group.base.file, schema, may_match, verified)
    else:
        base = read_rows_of_keys(store, config, group.base.file, schema, keys)
    return config.merge_policy.applied(base, logs).select(wanted.names)


def has_row_positions(group: FileGroup) -> bool:
    """Check whether log files record row positions.

    This is so if the slots record one row order digest for the base file and all logs.
    """
    order = group.base.file.order if group.base and not group.base.file.external else ""
    return bool(order) and all(log.file.order == order and not log.file.external for log in group.logs)


def _read_slice_by_position(
    store: Store,
    config: TableConfig,
    group: FileGroup,
    wanted: pa.Schema,
    verified: bool,
    may_match: Callable[[Stats, int], bool] | None,
) -> pa.Table:
    # Ordering values are not decoded if statistics show that each change wins.
    assert group.base is not None
    policy = config.merge_policy if not last_logged_change_wins(config, group) else LATER_WINS
    needed = [name for name in policy.needed_columns if name != RECORD_KEY]
    if any(log.file.schema != config.schema_id or log.file.partial for log in group.logs):
        needed.append(RECORD_KEY)  # a log may have none of the other columns
    extra = [name for name in needed if wanted.get_field_index(name) < 0]
    schema = pa.schema([*wanted, *schema_of(config, extra)])
    picked = _RowGroupFilter(may_match)
    base = read_base(store, config, group.base.file, schema, picked if may_match else None, verified)
    merged = policy.one_per_key(read_log_blocks(store, config, group, schema, by_row=True))
    if not merged:
        return base.select(wanted.names)
    (changes,) = merged
    assert changes.at is not None  # requested when the logs were read
    if changes.at.max(initial=-1) >= group.base.file.rows:
        raise CorruptTable(
            f"A log refers to a row that does not exist in its base file {group.base.file.path}. {_REMEDY}",
            file=group.base.file.path,
        )
    positions = picked.positions(changes.at)
    if changes.unset and (is_needed := (positions >= 0) | ~changes.partial).sum() < len(changes):
        kept = np.flatnonzero(is_needed)  # drops partial updates of rows that were not read
        changes, positions = changes.take(kept), positions[kept]
    return policy.applied_by_row(base, changes, positions).select(wanted.names)


class _RowGroupFilter:
    # Selects row groups by statistics, and maps positions in the file to positions among the rows that were read.
    def __init__(self, may_match: Callable[[Stats, int], bool] | None) -> None:
        self._may_match, self._rows, self._read = may_match, list[int](), list[bool]()

    def __call__(self, stats: Stats, rows: int) -> bool:
        assert self._may_match is not None
        self._rows.append(rows)
        self._read.append(self._may_match(stats, rows))
        return self._read[-1]

    def positions(self, rows: np.ndarray) -> np.ndarray:
        # -1 for a row that was not read.
        if not self._rows or all(self._read):
            return rows
        starts, read = np.cumsum([0, *self._rows]), np.array(self._read)
        before = np.cumsum(np.where(read, self._rows, 0)) - np.where(read, self._rows, 0)
        groups = np.searchsorted(starts, rows, side="right") - 1
        return np.where(read[groups], before[groups] + rows - starts[groups], -1)


def last_logged_change_wins(config: TableConfig, group: FileGroup) -> bool:
    """Check whether the last logged change always wins.

    Statistics must prove it. No rows are read, only the statistics of the ordering values.
    """
    ordered = bool(config.merge_policy.order_by)
    if not ordered or group.base is None:
        return not ordered
    files = [group.base.file, *sort_logs_by_instant(group)]
    if any(file.external or file.deletes and file.kind == LOG for file in files):
        return False
    ranges = [first_ordering_column_range(config, file) for file in files if file.rows]
    return all(
        config.merge_policy.changes_always_win([low], [high])
        for (_, high), (low, _) in zip(ranges, ranges[1:], strict=False)
    )


def first_ordering_column_range(config: TableConfig, file: DataFile) -> tuple[Any, Any]:
    name = config.merge_policy.bounded
    if name is None:
        return None, None
    bounds = config.resolution(file).convert_statistics(file.stats, file.rows).get(name, (None, None))
    kind = config.schema.field(name).type
    low, high = (None if bound is None else make_comparable(bound, kind) for bound in bounds[:2])
    return low, high


def read_rows_of_keys(store: Store, config: TableConfig, file: DataFile, schema: pa.Schema, keys: pa.Array) -> pa.Table:
    ordered = keys.sort()

    def may_hold(stats: Stats, rows: int) -> bool:
        low, high, _ = stats.get(RECORD_KEY, (None, None, 0))
        return low is None or high is None or _has_value_between(ordered, low, high)

    rows = base_file.BATCH_ROWS
    batches = read_base_batches(store, config, file, schema, rows, may_hold) if len(keys) else ()
    matching = [rows.filter(pa.array(among(rows[RECORD_KEY], keys))) for rows in batches]
    return pa.concat_tables([schema.empty_table(), *matching]).unify_dictionaries()


def _has_value_between(ordered: pa.Array, low: str, high: str) -> bool:
    # Both bounds are inclusive. Strings are compared as bytes, which is the order of Arrow's sort and of Parquet's
    # statistics.
    index = bisect_left(ordered, low.encode(), key=_utf8_bytes)
    return index < len(ordered) and _utf8_bytes(ordered[index]) <= high.encode()


def _utf8_bytes(text: pa.Scalar) -> bytes:
    return bytes(text.as_buffer())


def among(values: pa.ChunkedArray, keys: pa.Array) -> np.ndarray:
    return find_indexes(values, keys) >= 0


def mask_of_live_keys(store: Store, config: TableConfig, group: FileGroup, keys: pa.Array) -> np.ndarray:
    live = read_file_slice(store, config, group, schema_of(config, [RECORD_KEY]), keys=keys)[RECORD_KEY]
    return pc.is_in(keys, value_set=live.combine_chunks()).to_numpy(zero_copy_only=False)
