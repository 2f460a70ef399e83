"""Rewriting of base files in place, which copies unchanged columns.

Row groups without changes are copied, and so are unchanged columns of other row groups. An updated row stays at its
position, a deleted row is removed, and new rows are added at the end. Some files must be merged completely instead:
files of other engines, files with older columns, small files, and files with too many row groups. Memory holds the
bytes of the file, one row group and its changed copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.names import RECORD_KEY
from hoodoo.format.parquet import base_file
from hoodoo.format.parquet.hudi_bloom import MAX_KEY, MIN_KEY, FooterEntriesBuilder, add_keys_to_entries
from hoodoo.format.parquet.raw_copy import (
    CannotCopyFile,
    CopySource,
    RowGroupCopier,
    dictionary_columns_of_group,
    group_rows,
    require_compatible_files,
    uncompressed_group_bytes,
)
from hoodoo.format.rows import take_rows
from hoodoo.index import KeyIndex
from hoodoo.merge.kernels import KeyedChanges
from hoodoo.merge.pending import StreamingMerge
from hoodoo.merge.replaced_values import drop_unused_dictionary_values, replace_values
from hoodoo.readers.slices import slices
from hoodoo.storage.spool import IN_MEMORY, Spool
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import DataFile
from hoodoo.writers.files.base_sink import (
    BaseFileContent,
    record_row_order,
    store_base_file,
    store_entry,
    with_constants,
)
from hoodoo.writers.files.file_target import FileTarget

_DICTIONARY = pa.dictionary(pa.int32(), pa.string())
_SMALL = 1 << 20  # a smaller file is merged as a whole, which is equally fast
_TOO_MANY = 2  # maximum ratio of actual to needed row groups
_WORTH_JOINING = 8  # maximum ratio of the rows of a row group to the new rows that join it


@dataclass(frozen=True)
class BaseFileRewriter:
    """Rewriting of base files in place, which copies unchanged columns.

    Attributes:
        store: The store of the table.
        config: The table configuration for the files.
        index: The index, which gets entries for the files' keys.
        memory_bytes: The memory limit of one row group.
        step: Function that is called before each row group. If it raises an error, the rewrite ends.
    """

    store: Store
    config: TableConfig
    index: KeyIndex
    memory_bytes: int = base_file.ROW_GROUP_BYTES
    step: Callable[[], None] = lambda: None

    def rewrite(
        self, old: DataFile, instant: str, changes: KeyedChanges, stored: bytes | pa.Buffer | None = None
    ) -> tuple[DataFile, StreamingMerge]:
        """Rewrite a base file with changes.

        Args:
            old: The previous base file.
            instant: The instant of the write.
            changes: Changed rows with commit time, sequence number, record key and the table's columns, one per key.
            stored: The verified bytes of `old`, or None to read them.

        Returns:
            The new file, and the outcome of the changes.

        Raises:
            CannotCopyFile: The file must be merged completely. Nothing was written.
            CorruptTable: `old` is damaged.
        """
        if not old.digest or not old.index or old.schema != self.config.schema_id or old.size < _SMALL:
            raise CannotCopyFile(f"File {old.path} is small, or was written by another engine or with other columns.")
        data = (
            slices.read_verified_file(self.store, old, min(IN_MEMORY, self.memory_bytes)) if stored is None else stored
        )
        return _Rewrite(self, old, instant, CopySource.parse(data), changes).run()


class _Rewrite:
    def __init__(
        self, rewriter: BaseFileRewriter, old: DataFile, instant: str, source: CopySource, changes: KeyedChanges
    ) -> None:
        self._store, self._config, self._index = rewriter.store, rewriter.config, rewriter.index
        self._memory, self._step = rewriter.memory_bytes, rewriter.step
        self._old, self._source = old, source
        self._target = FileTarget(old.partition, old.file_id, instant)
        self._groups = source.groups()
        self._readers: dict[frozenset[str], base_file.RowGroupReader] = {}
        self._starts = np.cumsum([0, *map(group_rows, self._groups)])
        self._in_rows = self._index.keys_of_rows(old)
        self._changes = self._config.merge_policy.collapse(changes)
        self._pending = self._match_changes()

    def run(self) -> tuple[DataFile, StreamingMerge]:
        if max(map(uncompressed_group_bytes, self._groups), default=0) > self._memory:
            raise CannotCopyFile(f"File {self._old.path} has a row group that is too large to rewrite in memory.")
        sample = self._encoded(self._config.stored_schema.empty_table())
        require_compatible_files([self._source, sample], with_ids=False)
        matches = self._match_row_groups()
        new_rows = np.flatnonzero(~self._pending.found & ~self._changes.delete & ~self._changes.partial)
        joins_last_group = self._joins_last_group(len(new_rows))

        spool = Spool(min(IN_MEMORY, self._memory))
        copier = RowGroupCopier(spool, self._target.base_name, self._config.options.compression, sample)
        for number, (rows, change) in enumerate(matches):
            self._step()
            appended = new_rows if joins_last_group and number == len(matches) - 1 else new_rows[:0]
            self._copy_row_group(copier, number, rows, change, appended)
        if len(new_rows) and not joins_last_group:
            copier.add(self._encoded(self._rows(new_rows)))
        return self._store_new_file(copier, spool, new_rows, matches), self._pending

    # ---- the old file
    def _match_changes(self) -> StreamingMerge:
        policy, rows = self._config.merge_policy, self._changes.at
        if self._in_rows.before and rows is None:
            rows = self._index.rows(self._old, self._changes.rows[RECORD_KEY], self._changes.key_hashes())
        if not self._in_rows.before or rows is None:
            return policy.start_streaming_merge([self._changes])
        return policy.start_merge_by_position(self._changes, rows)

    def _match_row_groups(self) -> list[tuple[np.ndarray, np.ndarray]]:
        # Each pair has the replaced or deleted rows of a row group, and the index of the change of each of these rows.
        names = self._pending.needed_columns
        if not self._in_rows.before:
            names = tuple(dict.fromkeys([RECORD_KEY, *names]))
        matches = []
        parts = self._decode_columns(names) if names else iter([pa.table({})] * len(self._groups))
        for part, start, end in zip(parts, self._starts[:-1], self._starts[1:], strict=True):
            rows, change = self._pending.find_changed_rows(part, int(start), int(end - start))
            matches.append((rows, change))
            deleted = rows[self._changes.delete[change]]
            if self._in_rows.before:
                self._in_rows.dropped = np.concatenate([self._in_rows.dropped, start + deleted])
            else:
                self._in_rows.add(_without(part, deleted)[RECORD_KEY])
        return matches

    def _decode_columns(self, names: Sequence[str]) -> Iterator[pa.Table]:
        groups = self._open_row_groups(slices.schema_of(self._config, names))
        return (groups.decode(number) for number in range(len(self._groups)))

    def _decode_with_dictionaries(self, number: int, names: Sequence[str] | None = None) -> pa.Table:
        dictionary_columns = dictionary_columns_of_group(self._groups[number])
        if dictionary_columns not in self._readers:
            fields = [
                field.with_type(_DICTIONARY)
                if field.name in dictionary_columns and pa.types.is_string(field.type)
                else field
                for field in self._config.stored_schema
            ]
            self._readers[dictionary_columns] = self._open_row_groups(pa.schema(fields))
        return self._readers[dictionary_columns].decode(number, names)

    def _open_row_groups(self, schema: pa.Schema) -> base_file.RowGroupReader:
        return base_file.RowGroupReader(
            pa.BufferReader(self._source.data), self._old.path, schema, slices.get_expected_footer(self._old)
        )

    @cached_property
    def _columns_determined_by_key(self) -> frozenset[str]:
        kinds = ((name, self._config.schema.field(name).type) for name in self._config.key)
        names = (name for name, kind in kinds if pa.types.is_string(kind) or pa.types.is_integer(kind))
        return frozenset([RECORD_KEY, *names])

    def _joins_last_group(self, fresh: int) -> bool:
        max_rows = self._config.options.row_group_rows
        by_bytes = -(-sum(map(uncompressed_group_bytes, self._groups)) // base_file.ROW_GROUP_BYTES)
        room = _TOO_MANY * max(1, -(-(self._source.rows + fresh) // max_rows), by_bytes) - len(self._groups)
        joins = False
        if fresh and self._groups:
            rows, size = group_rows(self._groups[-1]), uncompressed_group_bytes(self._groups[-1])
            has_room = 2 * rows < max_rows and rows + fresh <= max_rows and 2 * size < self._memory
            joins = has_room and (rows <= _WORTH_JOINING * fresh or room <= 0)
        if room < (fresh > 0 and not joins):
            raise CannotCopyFile(f"The new version of file {self._old.path} would have too many row groups.")
        return joins

    # ---- the new file
    def _copy_row_group(
        self, copier: RowGroupCopier, number: int, rows: np.ndarray, change: np.ndarray, appended: np.ndarray
    ) -> None:
        # `change` is the index of the change of each row in `rows`, and `appended` are the new rows to add.
        group = self._groups[number]
        is_deleted = self._changes.delete[change]
        if len(appended) or is_deleted.any():
            copier.add(self._encoded(self._decode_changed_group(number, rows, change, is_deleted, appended)))
        elif len(rows):
            copier.add_group(self._source, group, self._encode_changed_columns(number, rows, change))
        else:
            copier.add_group(self._source, group)

    def _encode_changed_columns(self, number: int, rows: np.ndarray, change: np.ndarray) -> CopySource | None:
        unchanged = self._columns_determined_by_key | self._changes.as_stored
        chosen = {name: self._changes.setting(name, change) for name in self._config.stored_schema.names}
        names = [
            name
            for name, positions in chosen.items()
            if name not in unchanged and (positions is None or len(positions))
        ]
        base, new = self._decode_with_dictionaries(number, names), self._rows(change)
        columns = {name: replace_values(base[name], rows, new[name], chosen[name]) for name in names}
        changed = {name: column for name, column in columns.items() if column is not None}
        return self._encode_parquet(pa.table(changed), all_columns=False) if changed else None

    def _decode_changed_group(
        self, number: int, rows: np.ndarray, change: np.ndarray, is_deleted: np.ndarray, appended: np.ndarray
    ) -> pa.Table:
        remaining = change[~is_deleted]
        base, new = self._decode_with_dictionaries(number), self._rows(remaining)
        columns = [
            replace_values(base[name], rows[~is_deleted], new[name], self._changes.setting(name, remaining))
            for name in base.schema.names
        ]
        table = pa.table(
            [old if column is None else column for old, column in zip(base.columns, columns, strict=True)],
            names=base.schema.names,
        )
        if is_deleted.any():
            table = _without(table, rows[is_deleted])
            table = pa.table(
                [drop_unused_dictionary_values(column) for column in table.columns], names=table.schema.names
            )
        if len(appended):
            added = self._rows(appended).cast(table.schema)
            table = pa.concat_tables([table, added]).unify_dictionaries()
        return table

    def _rows(self, positions: np.ndarray) -> pa.Table:
        return take_rows(self._changes.rows.select(self._config.stored_schema.names), positions)

    def _encoded(self, rows: pa.Table) -> CopySource:
        return self._encode_parquet(with_constants(rows, self._old.partition, self._target.base_name))

    def _encode_parquet(self, rows: pa.Table, all_columns: bool = True) -> CopySource:
        # Some columns of a row group must be encoded into a single row group.
        sink, options = pa.BufferOutputStream(), self._config.options
        limits = (options.row_group_rows, self._memory) if all_columns else (max(1, len(rows)), 1 << 62)
        writer = base_file.BaseFileWriter(
            sink, options.compression, *limits, self._config.columns.arrow_fields_with_ids
        )
        writer.write(rows)
        writer.close({})
        return CopySource.parse(sink.getvalue(), whole=all_columns)

    # ---- storing the new file
    def _store_new_file(
        self, copier: RowGroupCopier, spool: Spool, new_rows: np.ndarray, matches: list[tuple[np.ndarray, np.ndarray]]
    ) -> DataFile:
        keys = self._changes.rows.select([RECORD_KEY])
        changed = np.concatenate([change for _, change in matches] or [new_rows[:0]])
        deleted = changed[self._changes.delete[changed]]
        added = take_rows(keys, new_rows)[RECORD_KEY]
        footer = self._extend_footer_entries(added, take_rows(keys, deleted)[RECORD_KEY])
        if not copier.rows or not footer:
            footer = self._compute_footer_entries(added, copier.rows, matches)
        self._in_rows.add(added, self._changes.hashes_at(new_rows))
        entry = store_entry(self._index, self._target, footer, self._in_rows)
        stats = copier.close(record_row_order(footer, entry))
        return store_base_file(
            self._store, self._config, self._target, BaseFileContent(spool, copier.rows, stats), entry
        )

    def _extend_footer_entries(self, added: pa.ChunkedArray, deleted: pa.ChunkedArray) -> dict[str, str]:
        # Hudi's bloom filter keeps its bits. Returns {} if the filter has no capacity left, or if the smallest or
        # largest key was deleted.
        entries = self._source.key_values()
        ends = pa.array([entries.get(MIN_KEY), entries.get(MAX_KEY)], pa.string())
        return {} if pc.any(pc.is_in(ends, value_set=deleted)).as_py() else add_keys_to_entries(entries, added)

    def _compute_footer_entries(
        self, added: pa.ChunkedArray, rows: int, matches: list[tuple[np.ndarray, np.ndarray]]
    ) -> dict[str, str]:
        entries = FooterEntriesBuilder(rows)
        for keys, (positions, change) in zip(self._decode_columns([RECORD_KEY]), matches, strict=True):
            entries.add(_without(keys, positions[self._changes.delete[change]])[RECORD_KEY])
        entries.add(added)
        return entries.entries()


def _without(table: pa.Table, rows: np.ndarray) -> pa.Table:
    if not len(rows):
        return table
    is_kept = np.ones(len(table), bool)
    is_kept[rows] = False
    return table.filter(pa.array(is_kept))


__all__ = ["BaseFileRewriter"]
