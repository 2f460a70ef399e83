"""What logs make of base files, for readers of base files alone.

Of each file group with logs an overlay says which rows of the base are not as they stand there any more, and holds in a
small Parquet file what became of them. A reader that passes over the former and adds the latter has the merged rows.
It reads bases' keys, and logs. It knows neither of the formats: how they say that rows are passed over is theirs.

The overlay's file lies below `.hoodie`, since Hudi's readers would take a Parquet file in a partition for a base file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hoodoo.engine.local import LocalEngine
from hoodoo.exports.writing import Writing
from hoodoo.format.names import COMMIT_TIME, META_COLUMNS, PARTITION_PATH, RECORD_KEY
from hoodoo.format.parquet import base_file, statistics
from hoodoo.merge.kernels import KeyedChanges
from hoodoo.readers.slices import slices
from hoodoo.storage.store import Store
from hoodoo.timeline.history import History
from hoodoo.timeline.layout import OVERLAYS
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import BASE, DataFile
from hoodoo.timeline.views.file_group import AddedFile
from hoodoo.timeline.views.view import FileGroup, View

_GROUP_DIGITS = 16
_NAME = re.compile(r"([0-9a-f]{16})([0-9a-f]{10})[0-9a-f]{6}")
_DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class Overlay:
    """What the logs of one file group make of its base.

    Attributes:
        name: It stands for the files of the group, and for the columns of the table.
        base: The base file; None where the group has logs alone.
        dead: Positions in the base, int64, ascending, of the rows that logs replace or delete.
        rows: The file of the rows that logs made; None where they made none.
    """

    name: str
    base: AddedFile | None
    dead: np.ndarray
    rows: AddedFile | None


def name_of(config: TableConfig, group: FileGroup) -> str:
    """The name of the overlay of a group: other files of the group, or other columns of the table, give another one.

    It is the group's part, the newest slot of its files, and the id of the columns, each in hexadecimal digits of fixed
    number, so that a UUID can say the same.
    """
    return f"{_group_part(group)}{_newest_slot(group):010x}{config.schema_id % (1 << 24):06x}"


def _group_part(group: FileGroup) -> str:
    """Other engines may give groups of two partitions one id."""
    return hashlib.sha256(f"{group.partition}\n{group.file_id}".encode()).hexdigest()[:_GROUP_DIGITS]


def _newest_slot(group: FileGroup) -> int:
    """The slot that brought the newest file of a group: one slot, one set of files."""
    return max(entry.seq for entry in group.files())


def covered(view: View) -> list[FileGroup]:
    """The file groups of which readers of base files do not see the rows as they are, in order of their ids."""
    found = [group for group in view.groups() if group.logs]
    return sorted(found, key=lambda group: (group.file_id, group.partition))


class Overlays:
    """The overlays of one table. Each is made once, whatever formats tell of it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._made: dict[str, Overlay] = {}
        self._keys: set[str] = set()  # of files with rows

    def of(self, writing: Writing, config: TableConfig, groups: Iterable[FileGroup]) -> list[Overlay]:
        """Return the overlay of each of `groups`, which have logs. The files of their rows are written.

        Raises CorruptTable where a file of a group is damaged.
        """
        wanted = {name_of(config, group): group for group in groups}
        fresh = [(name, group) for name, group in wanted.items() if name not in self._made]

        def make(named: tuple[str, FileGroup]) -> Overlay:
            name, group = named
            dead, rows = _overlaid(self._store, config, group)
            return Overlay(name, group.base, dead, _write(writing, config, group, f"{OVERLAYS}{name}.parquet", rows))

        self._keys |= {f"{OVERLAYS}{name}.parquet" for name, _ in fresh}
        self._made |= {one.name: one for one in LocalEngine().map(make, fresh)}
        return [self._made[name] for name in wanted]

    @staticmethod
    def whole_key(config: TableConfig, group: FileGroup) -> str:
        """Where `whole` writes the rows of a group."""
        return f"{OVERLAYS}whole_{name_of(config, group)}.parquet"

    def whole(self, writing: Writing, config: TableConfig, group: FileGroup) -> AddedFile | None:
        """Write all rows of a group, base and logs merged, for readers that cannot pass over rows of its base file.
        None where it has no row.

        Raises CorruptTable where a file of the group is damaged.
        """
        names = [RECORD_KEY, *(column.name for column in config.columns.columns)]
        rows = slices.read_slice(self._store, config, group, slices.schema_of(config, names), verified=True)
        self._keys.add(key := self.whole_key(config, group))
        return _write(writing, config, group, key, _placed(group, rows))

    def forget_passed(self, history: History) -> None:
        """Delete what was written here of slots that nobody can read any more: a purge that came between looked for its
        keys before they were written.
        """
        if self._keys:
            history.head()
            for key, _ in passed_files(self._store, passed_overlays(history)):
                if key in self._keys:
                    self._store.delete(key)


def _overlaid(store: Store, config: TableConfig, group: FileGroup) -> tuple[np.ndarray, pa.Table]:
    """The positions of dead rows in the base, and the rows that logs made.

    They have their record keys and partition, as those of bases do: a purge looks for these.
    """
    names = [RECORD_KEY, *(column.name for column in config.columns.columns)]
    asked = slices.columns_for(config, [*names, COMMIT_TIME], merging=True)  # logs that set no column count, too
    parts = slices.log_parts(store, config, group, slices.schema_of(config, asked))
    whole = not any(part.columns is not None or part.unset for part in parts)
    dead, rows = _of_whole_rows(store, config, group, parts) if whole else _of_keys(store, config, group, parts)
    return dead, _placed(group, rows.select(names))


def _placed(group: FileGroup, rows: pa.Table) -> pa.Table:
    """Rows whose first column is the record key, with their partition beside it."""
    return rows.add_column(1, PARTITION_PATH, base_file.constant(group.partition, len(rows)))


def _of_whole_rows(
    store: Store, config: TableConfig, group: FileGroup, parts: Sequence[KeyedChanges]
) -> tuple[np.ndarray, pa.Table]:
    """Where logs hold whole rows, and deletes: of the base only keys and ordering values are read."""
    pending = config.merge_policy.apply_streaming(parts)
    dead = np.empty(0, np.int64)
    if group.base:
        needed = slices.schema_of(config, config.merge_policy.needed_columns)
        dead, _ = pending.meet(slices.read_base(store, config, group.base.file, needed))
    return dead, pending.changes.rows.filter(pa.array(pending.live()))


def _of_keys(
    store: Store, config: TableConfig, group: FileGroup, parts: Sequence[KeyedChanges]
) -> tuple[np.ndarray, pa.Table]:
    """Where logs hold updates of some columns: all rows whose keys they name are merged."""
    keys = pa.concat_arrays([chunk for part in parts for chunk in part.rows[RECORD_KEY].chunks]).unique()
    dead = np.empty(0, np.int64)
    if group.base:
        stored = slices.read_base(store, config, group.base.file, slices.schema_of(config, [RECORD_KEY]))
        dead = np.flatnonzero(slices.among(stored[RECORD_KEY], keys))
    wanted = slices.schema_of(config, [RECORD_KEY, *(column.name for column in config.columns.columns)])
    return dead, slices.read_slice(store, config, group, wanted, keys=keys)


def _write(writing: Writing, config: TableConfig, group: FileGroup, key: str, rows: pa.Table) -> AddedFile | None:
    """Write rows as a file; none where there are none."""
    if not len(rows):
        return None
    schema = pa.schema([config.columns.file_fields[name] for name in rows.schema.names])
    sink = pa.BufferOutputStream()
    collected: list[pq.FileMetaData] = []
    with pq.ParquetWriter(
        sink,
        schema,
        compression=config.options.compression,
        write_page_checksum=True,
        store_schema=False,
        metadata_collector=collected,
    ) as writer:
        writer.write_table(rows.cast(schema))
    size = writing.first(key, sink.getvalue())
    own = pa.schema([field for field in schema if field.name not in META_COLUMNS])
    stats = statistics.of_parquet(collected[0], own)
    file = DataFile(
        key, group.partition, group.file_id, BASE, size, "", len(rows), stats=stats, schema=config.schema_id
    )
    return AddedFile(_newest_slot(group), file)


def digest_of(config: TableConfig, groups: Iterable[FileGroup]) -> str:
    """What tells the overlays of these groups from others."""
    return hashlib.sha256("\n".join(name_of(config, group) for group in groups).encode()).hexdigest()[:32]


def passed_overlays(history: History) -> Callable[[str], bool]:
    """Return what tells of the name of an overlay that no export of a readable slot names it.

    An export names the overlay of a group as it was at its slot. So of one group all are passed that are older than
    that of the oldest readable slot.
    """
    readable = max(history.known_head().min_readable, 1)
    newest = {_group_part(group): _newest_slot(group) for group in history.state(readable).groups()}

    def passed(name: str) -> bool:
        parsed = _NAME.fullmatch(name)
        return parsed is not None and int(parsed[2], 16) < newest.get(parsed[1], readable + 1)

    return passed


def sweep_overlays(store: Store, passed: Callable[[str], bool], now_ms: int) -> None:
    """Delete the files of overlays that are passed, and a day old: readers of older exports may be at work on them."""
    for key, _ in passed_files(store, passed):
        if (store.modified_ms(key) or now_ms) < now_ms - _DAY_MS:
            store.delete(key)


def passed_files(store: Store, passed: Callable[[str], bool]) -> list[tuple[str, int]]:
    """The files of overlays that are passed, and their bytes: those of rows, and those that name dead rows."""
    return [
        (key, size)
        for key, size in store.list(OVERLAYS)
        if passed(key.removeprefix(OVERLAYS).partition(".")[0].rpartition("_")[2].replace("-", ""))
    ]
