"""Search for damaged parts of files.

If the bytes of a log match the digest in the slot, the log is read record by record. Otherwise the whole log counts as
damaged. A base file with changed bytes is still read if its footer matches the slot. The row groups whose pages match
their checksums are then kept.

A value that is invalid for its type also counts as damaged. An example is text with invalid UTF-8, which earlier
releases wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hoodoo.errors import CorruptTable
from hoodoo.format.log.damaged_log import UnreadableRecords, read_damaged_log, split_by_readability
from hoodoo.format.names import META_COLUMNS, RECORD_KEY
from hoodoo.format.parquet import base_file
from hoodoo.merge.kernels import KeyedChanges
from hoodoo.readers.slices import slices
from hoodoo.storage.store import Store, digest
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import BASE, DataFile

_ROWS = 1 << 16


@dataclass(frozen=True, eq=False)  # instances are compared by identity
class Damage:
    """Damage in one part of a file.

    Attributes:
        file: The file.
        block: The index of the log block or of the row group, from 0. None if it is unknown, or for the whole file.
        row: The index of the row in the block. None if it is unknown, or for the whole block.
        why: The reason.
        rows: The number of lost rows.
        known: The record keys of the lost rows, as far as they are readable, with the ordering columns if possible.
        deletes: True if deletes in the file are lost.
    """

    file: DataFile
    block: int | None
    row: int | None
    why: str
    rows: int = 0
    known: pa.Table | None = None
    deletes: bool = False

    @property
    def location(self) -> str:
        block = "row group" if self.file.kind == BASE else "block"
        parts = [
            f"{block} {self.block}" if self.block is not None else "",
            f"row {self.row}" if self.row is not None else "",
        ]
        return ", ".join(filter(None, parts)) or "the whole file"


def key_and_ordering_columns(config: TableConfig) -> list[list[str]]:
    needed = list(config.merge_policy.needed_columns)
    return [needed, [RECORD_KEY]] if len(needed) > 1 else [needed]


def read_log(store: Store, config: TableConfig, file: DataFile, schema: pa.Schema) -> Iterator[KeyedChanges | Damage]:
    try:
        data = slices.read_verified_file(store, file)
    except CorruptTable as problem:
        keys = _readable_keys(store, config, file)
        yield Damage(file, None, None, problem.message, file.rows - file.deletes, keys, bool(file.deletes))
        return
    for block, part in read_damaged_log(
        memoryview(data),
        config.resolution(file).names_of(schema.names),
        key_and_ordering_columns(config),
        strict=bool(file.digest),
    ):
        if isinstance(part, UnreadableRecords):
            yield Damage(file, block, part.row, part.why, part.count, part.known, part.deletes)
        else:
            yield slices.as_changes(part, schema, config, file)


def _readable_keys(store: Store, config: TableConfig, file: DataFile) -> pa.Table | None:
    # The keys are used only in reports.
    try:
        data = store.get(file.path)
        contents = [part for _, part in read_damaged_log(data, [RECORD_KEY], [[RECORD_KEY]], strict=False)]
    except (FileNotFoundError, CorruptTable):
        return None
    parts = [part.known if isinstance(part, UnreadableRecords) else getattr(part, "rows", None) for part in contents]
    tables = [part.select([RECORD_KEY]) for part in parts if part is not None]
    return pa.concat_tables(tables) if tables else None


def read_base(store: Store, config: TableConfig, file: DataFile, schema: pa.Schema) -> Iterator[pa.Table | Damage]:
    try:
        data = slices.read_bytes(store, file)
        changed = bool(file.digest) and digest(data) != file.digest
        footer = slices.get_expected_footer(file, _schema_when_written(config, file) if changed else None)
        counts = base_file.count_row_group_rows(pa.BufferReader(data), file.path, footer)
    except CorruptTable as problem:
        yield Damage(file, None, None, problem.message, file.rows)
        return
    for group, count in enumerate(counts):
        try:
            rows = base_file.RowGroupReader(
                pa.BufferReader(data), file.path, schema, resolution=config.resolution(file)
            ).decode(group)
        except CorruptTable as problem:
            yield Damage(file, group, None, problem.message, count, _read_row_group_keys(config, data, file, group))
            continue
        yield from _split_valid_rows(config, file, group, rows)
    if changed:
        yield Damage(file, None, None, "its content does not match the digest in its slot.")


def _schema_when_written(config: TableConfig, file: DataFile) -> pa.Schema:
    meta = [config.file_schema.field(name) for name in META_COLUMNS]
    return pa.schema([*meta, *config.columns_of(file).arrow])


def _read_row_group_keys(config: TableConfig, data: pa.Buffer, file: DataFile, group: int) -> pa.Table | None:
    for columns in key_and_ordering_columns(config):
        try:
            return base_file.RowGroupReader(pa.BufferReader(data), file.path, slices.schema_of(config, columns)).decode(
                group
            )
        except CorruptTable:
            continue
    return None


def _split_valid_rows(config: TableConfig, file: DataFile, group: int, rows: pa.Table) -> Iterator[pa.Table | Damage]:
    # The check is needed because the Parquet reader accepts any bytes as text.
    reasons: dict[int, str] = {}

    def read(low: int, high: int) -> pa.Table | None:
        part = rows if high - low == len(rows) else rows.take(pa.array(np.arange(low, high)))
        try:
            part.validate(full=True)
        except pa.ArrowInvalid as problem:
            reasons[low] = str(problem)
            return None
        return part

    for low, _, sound in split_by_readability(len(rows), read):
        if sound is not None:
            yield sound
        else:
            columns = [name for name in key_and_ordering_columns(config)[0] if rows.schema.get_field_index(name) >= 0]
            yield Damage(file, group, low, reasons[low], 1, _none_if_invalid(rows.select(columns).slice(low, 1)))


def _none_if_invalid(known: pa.Table) -> pa.Table | None:
    try:
        known.combine_chunks().validate(full=True)
    except pa.ArrowInvalid:
        return None
    return known


def unreadable(store: Store, config: TableConfig, file: DataFile) -> Iterator[Damage]:
    read = read_base if file.kind == BASE else read_log
    for part in read(store, config, file, config.stored_schema):
        if isinstance(part, Damage):
            yield part
