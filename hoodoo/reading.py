"""How a table is read: snapshots, what changed, single keys, history.

The third of `hoodoo.table.Table` that writes nothing. Checks arguments and fixes positions; what each read does is in
hoodoo.readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from hoodoo.arguments import number_from, one_of
from hoodoo.errors import ColumnError, PositionError
from hoodoo.format.names import META_COLUMNS, RECORD_KEY
from hoodoo.handle import Seen, TableHandle
from hoodoo.index.key_index import Keys
from hoodoo.readers.changes import Changes
from hoodoo.readers.follow import follow
from hoodoo.readers.incremental import IncrementalRows
from hoodoo.readers.lookup import in_order, look_up
from hoodoo.readers.output import Rows, guarded
from hoodoo.readers.positions import Cursor, PositionLike, resolve
from hoodoo.readers.predicate.filter import Where
from hoodoo.readers.scan import Scan, chosen_columns
from hoodoo.readers.slice_task import Range
from hoodoo.timeline import timeline_listing
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.history import History
from hoodoo.timeline.view import View
from hoodoo.writers.batch import prepare
from hoodoo.writers.input import ArrowLike, to_arrow

KeysLike: TypeAlias = "ArrowLike | Iterable[object]"
"""Rows with the key columns, or, where the key is one column, its bare values."""


class Readable:
    """The reads of a table; the rest of it is Table's."""

    handle: TableHandle

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        as_of: PositionLike | None = None,
        read_optimized: bool = False,
        meta: bool = False,
        verified: bool = False,
    ) -> Scan:
        """Live rows, of the newest slot or as of a position (a cursor, an instant, a time with a zone as a datetime or
        as ISO 8601 text, the name of a savepoint).

        where: SQL-like text or a pyarrow expression. read_optimized: base files only, without what logs changed since.
        meta: also Hudi's five meta columns. verified: compare every file read with its digest in the slot, which reads
        files whole; without it their size and Parquet's page checksums are looked at. Raises ColumnError,
        PredicateError, PositionError, SnapshotExpired.
        """
        seen = self.handle.at(as_of)
        return Scan(seen.history, seen.config, seen.view, columns, where, meta, read_optimized, verified=verified)

    def _between(self, since: PositionLike, until: PositionLike | None) -> tuple[int, Seen]:
        """The slot after which a range begins, and the table as it was at its end."""
        seen = self.handle.at(until)
        after = resolve(seen.history, since, exclusive=True)
        if after > seen.view.seq:
            raise PositionError(
                f"until is slot {seen.view.seq}, before since, slot {after}. diff() compares two snapshots in either "
                "order.",
                position=after,
            )
        return after, seen

    def incremental(
        self,
        since: PositionLike,
        until: PositionLike | None = None,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        meta: bool = False,
        deletes: bool = False,
    ) -> Scan | IncrementalRows:
        """The newest version of each row changed in (since, until], as it stands at `until` (default: now). Pass
        `.cursor` of the result as the next since.

        since, until: positions as scan() takes them, or 'earliest'.
        deletes: also the keys deleted in the range, with `_hoodie_is_deleted` true and their key, partition and
        ordering columns filled, so that `other.upsert(table.incremental(since, deletes=True))` keeps another table the
        same (one without order_by: what is newer was decided here). That needs the snapshot at `since` to be readable.
        """
        after, seen = self._between(since, until)
        return rows_changed(seen, after, columns, where, meta, deletes)

    def changes(
        self,
        since: PositionLike,
        until: PositionLike | None = None,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        versions: str = "net",
    ) -> Changes:
        """Every insert, update and delete in (since, until], one row each: `op` ("i", "u", "d"), `instant`, `before`,
        `after` (structs).

        versions: 'net' compares the two snapshots (one change for a key, none where it is as it was), 'all' gives what
        each commit did, in order.
        columns, where: the changes of those columns of the rows that match: a row that ceases to match is a delete.
        Raises SnapshotExpired, naming the earliest position, where files of the range are gone; ColumnError,
        PredicateError, PositionError.
        """
        after, seen = self._between(since, until)
        return Changes(seen.history, seen.config, after, seen.view, columns, where, versions)

    def diff(
        self,
        a: PositionLike,
        b: PositionLike | None = None,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
    ) -> Changes:
        """What makes snapshot `a` into snapshot `b` (default: now): `op`, `before`, `after`. Any two readable
        positions, in either order.
        """
        config, history, view = self.handle.at(b)
        return Changes(history, config, resolve(history, a), view, columns, where, timed=False)

    def get(
        self,
        keys: KeysLike,
        columns: Sequence[str] | None = None,
        as_of: PositionLike | None = None,
        meta: bool = False,
    ) -> pa.Table:
        """The live rows with these keys, in the order of the keys; keys that are not there are left out. Goes through
        the index.

        keys: a table, DataFrame or list of dicts with the key columns, or a list of values where the key is one column.
        With the partition columns it looks there only, without them in every partition. Raises ColumnError,
        KeyValueError, PositionError, SnapshotExpired.
        """
        config, history, view = self.handle.at(as_of)
        chosen = chosen_columns(columns, [*META_COLUMNS, *config.schema.names] if meta else config.schema.names)
        given = to_arrow(
            _as_rows(keys, config), pa.schema(map(config.schema.field, [*config.key, *config.partition_by]))
        )
        placed = [name for name in config.partition_by if name in given.schema.names]
        if placed and len(placed) < len(config.partition_by):
            raise ColumnError(
                f"keys has partition column {placed[0]!r} but not all of {', '.join(config.partition_by)}.",
                column=placed[0],
            )
        if placed and not config.folders_tell_values:
            raise ColumnError(
                f"The folders of this table are made by {config.key_generator or 'a key generator of its own'}: which "
                f"one holds a value of {placed[0]!r} is not known. Pass keys without partition columns; they are "
                "looked for in every partition.",
                column=placed[0],
            )
        batch = prepare(given if placed else _without_partition(given, config), config, True, "first")
        record_keys = batch.rows[RECORD_KEY].combine_chunks()
        if len(placed) == len(config.partition_by):
            wanted = Keys.where_they_are(record_keys, batch.hashes, batch.partitions, batch.codes)
        else:
            wanted = Keys.in_every_partition(record_keys, batch.hashes, list(view.partitions))
        rows = guarded(
            history,
            lambda: history.require_readable(view.seq),
            lambda: look_up(self.handle.store, config, self.handle.index, view, wanted, list(chosen)),
        )
        return in_order(rows, record_keys).select(list(chosen))

    def follow(
        self,
        since: PositionLike,
        mode: str = "changes",
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        deletes: bool = False,
        versions: str = "net",
        most_commits: int | None = None,
        poll_s: float = 1.0,
        timeout_s: float | None = None,
    ) -> Iterator[Rows]:
        """What changed since a position, then what changed since that, and so on: iterates over reads like those of
        `changes` or `incremental` (mode).

        Keep `.cursor` of the last one that you handled: following since it goes on there, with nothing missed and
        nothing twice.
        deletes: of 'incremental'; versions: of 'changes'. most_commits: at most so many commits at once. Looks every
        `poll_s` seconds, and ends where nothing came for `timeout_s` seconds (None: never).
        """
        one_of("mode", mode, ("changes", "incremental"))
        number_from("most_commits", most_commits, 1, whole=True)
        number_from("poll_s", poll_s, 0, optional=False)
        number_from("timeout_s", timeout_s, 0)
        _, history, view = self.handle.look()
        table, start = view.table, resolve(history, since, exclusive=True)

        def look() -> tuple[History, View]:
            seen = self.handle.look()
            return seen.history, seen.view

        def pull(after: int, until: int) -> Rows:
            between = Cursor(table, after) if after else "earliest", Cursor(table, until)
            return (
                self.changes(*between, columns, where, versions)
                if mode == "changes"
                else self.incremental(*between, columns, where, deletes=deletes)
            )

        return follow(look, start, pull, most_commits, poll_s, timeout_s)

    def timeline(self, newest: int | None = None) -> timeline_listing.Timeline:
        """Every instant in order, pending ones last; `newest` limits it to that many slots."""
        number_from("newest", newest, 1, whole=True)
        return timeline_listing.listing(self.handle.store, self.handle.look().history, newest)

    def history(self, newest: int | None = None) -> timeline_listing.Commits:
        """The commits that changed rows, the newest first: when, what, how many rows, and whether their snapshot can be
        read.

        newest: at most so many.
        """
        number_from("newest", newest, 1, whole=True)
        return timeline_listing.commits(self.handle.look().history, newest)


def rows_changed(
    seen: Seen, after: int, columns: Sequence[str] | None, where: Where | None, meta: bool, deletes: bool
) -> Scan | IncrementalRows:
    """The rows of `seen` that slots after `after` changed, with the columns of its configuration."""
    config, history, view = seen
    history.require_not_undone(after)
    instants = None
    if after:
        instants = frozenset(slot.instant for slot in history.slots(after, view.seq) if slot.writes_rows)
    changed = Scan(history, config, view, columns, where, meta, changed=Range(after, instants))
    return IncrementalRows(history, config, changed, after, view, where, meta) if deletes else changed


def _as_rows(keys: KeysLike, config: TableConfig) -> ArrowLike:
    """Bare key values, a list or an array of them, as a table."""
    bare = isinstance(keys, (pa.Array, pa.ChunkedArray)) or hasattr(keys, "__array__") and not hasattr(keys, "columns")
    if not bare and (not isinstance(keys, (list, tuple)) or any(isinstance(key, Mapping) for key in keys)):
        return list(keys) if isinstance(keys, tuple) else keys
    if len(config.key) > 1:
        raise ColumnError(
            f"The key has {len(config.key)} columns: pass dicts or a table with {', '.join(config.key)}.",
            columns=config.key,
        )
    field = config.schema.field(config.key[0])
    if not isinstance(keys, (pa.Array, pa.ChunkedArray)):
        keys = to_arrow({field.name: keys}, pa.schema([field]))[field.name]
    values = keys if len(keys) else pa.array([], field.type)
    return pa.table({field.name: values})  # its type is checked, and cast where nothing is lost, with the rest


def _without_partition(given: pa.Table, config: TableConfig) -> pa.Table:
    """Keys that do not say where they are, with partition columns that say nothing."""
    everywhere = {
        name: pa.nulls(len(given), config.schema.field(name).type)
        for name in config.partition_by
        if name not in config.key
    }
    rows = given.select([name for name in given.schema.names if name in config.key])
    for name, nothing in everywhere.items():
        rows = rows.append_column(name, nothing)
    return rows
