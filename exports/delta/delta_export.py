"""Export of a table as a Delta log, up to its newest slot. Each slot that changed base files gets one Delta version.

A version is created only if it does not exist, and its bytes depend only on slots. Exporters therefore need no
coordination: a slower exporter finds its own bytes, or continues from the existing version. A crash between two writes
leaves a log of complete versions that the next export continues from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from hoodoo.errors import ForeignExport, OptionError, SchemaError, SnapshotExpired
from hoodoo.exports.attempts import attempted
from hoodoo.exports.base_files import (
    IDLE_SLOTS,
    BaseChanges,
    Step,
    continues_from,
    first_slot,
    live,
    require_no_partition,
    steps,
    unchanged,
)
from hoodoo.exports.delta import actions
from hoodoo.exports.delta.checkpoint import Checkpoint, checkpoint, checkpoint_after, last_checkpoint
from hoodoo.exports.delta.delta_schema import Json, may_declare_partitions, partition_texts, require_holdable
from hoodoo.exports.delta.log import (
    FOLDER,
    NEWEST_CHECKPOINT,
    Identity,
    LogState,
    changed_files,
    checkpoint_key,
    checkpoints_among,
    identity,
    live_files,
    newest,
    state_of,
    version_key,
    versions_among,
)
from hoodoo.exports.delta.overlaid import overlaid_adds
from hoodoo.exports.overlays import Overlays, covered, digest_of, passed_overlays, sweep_overlays
from hoodoo.exports.request import Request
from hoodoo.exports.results import DeltaExport
from hoodoo.exports.writing import Writing
from hoodoo.format.table_schema import TableSchema
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.properties.table_options import DELTA
from hoodoo.timeline.views.file_group import AddedFile
from hoodoo.timeline.views.view import View

_CHECKPOINT_EVERY = 10
_FILES_PER_VERSION = 100
"""A checkpoint is written every max(10, files / 100) versions, so that its cost per version is that of ten files."""
_ENABLE_FEED = "ENABLE CHANGE DATA FEED"
"""Operation in the `commitInfo` of a version that only enables the change data feed."""
_NO_MERGED_FEED = (
    "The Delta log has a change data feed: expected mode 'read_optimized', got 'merged'. Pass mode='read_optimized' "
    f"(--mode read_optimized), or delete the folder {FOLDER} of the table and export again without change_feed."
)
_WHOLE = "EXPORT"
"""Operation in the `commitInfo` of a version that replaces the whole contents of the table."""


def require_exportable(config: TableConfig, view: View) -> None:
    """Raise SchemaError or PartitionValueError if the table cannot be exported to Delta."""
    require_holdable(config.columns)
    require_no_partition(view, FOLDER.rstrip("/"))


def export(request: Request) -> tuple[DeltaExport, int]:
    """Export the table to its Delta log, by writing the missing versions.

    If logs are merged, one version covers all slots since the last export. Returns the export result, and the slot that
    readers now see. Raises ForeignExport if another writer committed to the Delta log, or if the log belongs to another
    table.
    """
    remedy = f"Delete the folder {FOLDER} of the table and export again; no row is in it."
    return attempted(request, DELTA, FOLDER, remedy, _Exporter(request).run)


class _Exporter:
    def __init__(self, request: Request) -> None:
        self.writing, self.store = Writing(request.store), request.store
        self.history, self.config = request.history, request.config
        self.now_ms, self.rebuild, self.overlays, self.versions = request.now_ms, request.rebuild, request.overlays, 0
        self.change_feed = request.change_feed

    def run(self, until: int) -> tuple[DeltaExport, int]:
        was, goes_on = newest(self.store), False
        if was.feed and self.overlays:
            raise OptionError(_NO_MERGED_FEED, option="mode")
        # a slow exporter named a checkpoint that another one had deleted; without the hint, readers list the log
        if was.misled:
            self.store.delete(NEWEST_CHECKPOINT)
        if was.version >= 0 and not self.rebuild:
            _require_ours(was, self.history.known_head().table)
            goes_on = continues_from(self.history, was.slot, was.instant)
            # another exporter has exported newer slots, or slots that are now archived
            if was.slot > until or not goes_on:
                until = self.history.head().seq
                goes_on = continues_from(self.history, was.slot, was.instant)
        head = self.history.state(until)
        state = was
        if self.overlays:
            state = self._merged(self.overlays, was, head, goes_on)
        elif was.version < 0:
            state = self._whole(replace(was, feed=self.change_feed), self.history.state(self._first(until)))
        elif was.overlays or not goes_on:
            state = self._whole(was, head)
        if self.change_feed and not state.feed:
            state = self._with_feed(state, self.history.state(state.slot))
        if state.slot < until and not self.overlays:
            for step in steps(self.history, state.slot, until):
                state = self._step(state, step)
        if head.min_readable > 1:
            self._retain(head.min_readable)
            sweep_overlays(self.store, passed_overlays(self.history), self.now_ms)
        return DeltaExport(state.version, self.versions, self.writing.files, self.writing.bytes), until

    def _first(self, until: int) -> int:
        """Return the first slot of a first export: the oldest readable one after which Delta supports all columns."""
        first = min(first_slot(self.history), until)
        entries = self.config.schemas.entries
        for (_, number, _), (end, _, _) in zip(entries, entries[1:], strict=False):
            columns = self.config.schemas.schema(number)
            if columns is not None and not _holds(columns):
                first = max(first, end)
        return first

    def _config(self, view: View) -> TableConfig:
        return self.config.with_schemas(view.schemas)

    # ---- versions
    def _with_feed(self, was: LogState, view: View) -> LogState:
        """Write a Delta version with the files of `was`, which enables the change data feed for later versions."""
        state = replace(was, version=was.version + 1, at_ms=was.at_ms + 1, feed=True)
        info = actions.commit_info(_ENABLE_FEED, state.at_ms, False, state.said())
        self._commit(state, [info, *self._heads(state, self._config(view), view)])
        return self._checkpointed(state, view)

    def _whole(self, was: LogState, view: View) -> LogState:
        """Write a Delta version that replaces the contents of the log by exactly the base files of the view."""
        config, files = self._config(view), live(view)
        partitioned = may_declare_partitions(config) and _can_declare(config, files.values())
        partitioned &= was.partitioned or not was.feed or was.version < 0  # Spark's feed would lose partition values
        state = self._next(was, config, view, partitioned)
        wanted = _adds(config, partitioned, state.at_ms, sorted(files.items()), True)
        there = live_files(self.store, was.version) if was.version >= 0 else {}
        self._commit(state, self._exactly(state, config, view, there, wanted))
        return self._checkpointed(state, view, at_once=was.version >= 0)

    def _merged(self, overlays: Overlays, was: LogState, view: View, goes_on: bool) -> LogState:
        """Write a Delta version with the base files of the view, and with overlays for file groups with logs.

        Returns `was` if the Delta log already has these contents. `goes_on` is True if the export can continue from it.
        """
        config, groups = self._config(view), covered(view)
        said = digest_of(config, groups)
        if goes_on and (was.slot, was.overlays) == (view.seq, said):
            return was
        state = replace(self._next(was, config, view, partitioned=False), overlays=said)
        there = live_files(self.store, was.version) if was.version >= 0 else {}
        as_now = goes_on and bool(was.overlays) and not was.partitioned and was.schema == state.schema
        wanted = overlaid_adds(self.writing, overlays, config, view, groups, there if as_now else {}, state.at_ms)
        same = as_now and {identity(one["add"]) for one in wanted} == there.keys()
        if same and view.seq - was.slot < IDLE_SLOTS:
            return was
        self._commit(state, self._exactly(state, config, view, there, wanted, named_anew=not as_now))
        return self._checkpointed(state, view, at_once=was.version >= 0 and not goes_on)

    def _exactly(
        self,
        state: LogState,
        config: TableConfig,
        view: View,
        there: Mapping[Identity, Json],
        wanted: Sequence[Json],
        named_anew: bool = True,
    ) -> list[Json]:
        """Return the actions of a Delta version that makes `wanted` the only files in the log.

        `there` are the files in the log before. `named_anew` also writes the actions of unchanged files again, because
        columns or partitions differ.
        """
        kept = {identity(one["add"]) for one in wanted} & there.keys()
        heads = self._heads(state, config, view)
        return [
            actions.commit_info(_WHOLE, state.at_ms, False, state.said()),
            *(heads if named_anew else heads[-1:]),
            *(actions.removal(one, state.at_ms) for known, one in sorted(there.items()) if known not in kept),
            *(
                {"add": {**one["add"], "dataChange": identity(one["add"]) not in kept}}
                for one in wanted
                if named_anew or identity(one["add"]) not in kept
            ),
        ]

    @staticmethod
    def _heads(state: LogState, config: TableConfig, view: View) -> list[Json]:
        """Return the actions `protocol`, `metaData` and `txn`."""
        merges = bool(state.overlays)
        return [
            actions.protocol(config, merges, state.feed),
            actions.metadata(config, view.table, state.partitioned, merges, state.feed),
            actions.transaction(state.slot, state.at_ms),
        ]

    def _step(self, was: LogState, step: Step) -> LogState:
        """Write the Delta version of one slot. Returns `was` if the slot changed nothing that a Delta reader sees."""
        view, changes = step.view, step.changes
        config = self._config(view)
        reshaped = config.columns.id != was.schema
        if not changes and not reshaped and view.seq - was.slot < IDLE_SLOTS:
            return was
        partitioned = was.partitioned and _can_declare(config, changes.added.values())
        state = self._next(was, config, view, partitioned)
        at_ms, slot = state.at_ms, step.slot
        said = [actions.commit_info(slot.operation or slot.action.upper(), at_ms, not changes.removed, state.said())]
        heads = self._heads(state, config, view)
        said += heads if reshaped or partitioned != was.partitioned else heads[-1:]
        said += self._files(config, state, changes)
        # write the other files again, because their bounds or partitions differ
        if reshaped or partitioned != was.partitioned:
            others = {path: file for path, file in live(view).items() if path not in changes.added}
            said += _adds(config, partitioned, at_ms, others.items(), False)
        self._commit(state, said)
        return self._checkpointed(state, view)

    def _files(self, config: TableConfig, state: LogState, changes: BaseChanges) -> list[Json]:
        removed = sorted(changes.removed.items())
        at_ms, rows = state.at_ms, changes.changes_rows
        return [
            *(actions.remove(config, file, state.partitioned, at_ms, rows) for _, (_, file) in removed),
            *_adds(config, state.partitioned, at_ms, sorted(changes.added.items()), rows),
        ]

    def _next(self, was: LogState, config: TableConfig, view: View, partitioned: bool) -> LogState:
        """Return the state of the next Delta version. Its in-commit timestamp is greater than the previous one."""
        return LogState(
            was.version + 1,
            max(view.completed_at, was.at_ms + 1),
            view.table,
            view.seq,
            view.instant,
            config.columns.id,
            partitioned,
            feed=was.feed,
            checkpoint=was.checkpoint,
        )

    def _commit(self, state: LogState, said: Sequence[Json]) -> None:
        self.writing.once(version_key(state.version), actions.encode(said))
        self.versions += 1

    # ---- checkpoints, and deletion of old versions
    def _checkpointed(self, state: LogState, view: View, at_once: bool = False) -> LogState:
        """Write a Delta checkpoint if it is due or if `at_once` is True, so that readers need not read earlier
        versions.
        """
        since = state.version - max(state.checkpoint, 0)
        if not at_once and since < max(_CHECKPOINT_EVERY, view.totals.bases // _FILES_PER_VERSION):
            return state
        self._checkpoint(state, view, is_newest=True, from_log=not at_once)
        return replace(state, checkpoint=state.version)

    def _checkpoint(self, state: LogState, view: View, is_newest: bool, from_log: bool) -> None:
        """Write the Delta checkpoint of the version in `state`.

        With `from_log`, it is built from the previous checkpoint and the versions since then. This takes a tenth of the
        time that building it from the view takes.
        """
        config = self._config(view)
        heads = self._heads(state, config, view)
        made = (self._from_log(state, view, heads) if from_log else None) or self._from_view(state, view, heads)
        self.writing.replace(checkpoint_key(state.version), made.data)
        if is_newest:
            self.writing.replace(NEWEST_CHECKPOINT, last_checkpoint(state.version, made.files, len(heads)))

    def _from_log(self, state: LogState, view: View, heads: Sequence[Json]) -> Checkpoint | None:
        """Build a Delta checkpoint from the previous checkpoint and the versions after it.

        Returns None if the previous checkpoint or a later version is missing or has unexpected contents.
        """
        with suppress(FileNotFoundError, pa.ArrowException, OSError):
            before = self.store.get(checkpoint_key(state.checkpoint)) if state.checkpoint >= 0 else None
            changed = changed_files(self.store, state.checkpoint + 1, state.version + 1)
            made = checkpoint_after(before, heads, changed)
            return made if state.overlays or made.files == len(live(view)) else None
        return None

    def _from_view(self, state: LogState, view: View, heads: Sequence[Json]) -> Checkpoint:
        if state.overlays:
            found = live_files(self.store, state.version)
            adds = [{"add": {**one, "dataChange": False}} for _, one in sorted(found.items())]
        else:
            adds = _adds(self._config(view), state.partitioned, view.completed_at, sorted(live(view).items()), False)
        return Checkpoint(checkpoint(heads, adds), len(adds))

    def _retain(self, readable: int) -> None:
        """Delete old Delta versions whose data files cleaning may have deleted.

        The oldest remaining version is the one that shows slot `readable`, or the first later one if no version shows
        this slot. It gets a checkpoint first.
        """
        names = self.store.names(FOLDER)
        versions, checkpoints = versions_among(names), checkpoints_among(names)
        kept: LogState | None = None
        for version in versions:
            try:
                state = state_of(self.store, version)
            except FileNotFoundError:  # another exporter also deletes versions
                continue
            if state.external:
                continue
            if state.slot <= readable:
                kept = state
                continue
            if kept is None or kept.overlays or not unchanged(self.history, kept.slot, readable):
                kept = state
            break
        if kept is None or kept.version == versions[0]:
            return
        if kept.version not in checkpoints:
            try:
                view = self.history.state(kept.slot)
            except SnapshotExpired:
                return  # a later export keeps a newer version
            self._checkpoint(kept, view, is_newest=not any(one > kept.version for one in checkpoints), from_log=False)
        for version in versions:
            if version < kept.version:
                self.store.delete(version_key(version))
        for version, files in checkpoints.items():
            if version < kept.version:
                for name in files:
                    self.store.delete(FOLDER + name)


def _adds(
    config: TableConfig, partitioned: bool, at_ms: int, files: Iterable[tuple[str, AddedFile]], changes_rows: bool
) -> list[Json]:
    return [actions.add(config, file, partitioned, at_ms, changes_rows) for _, (_, file) in files]


def _holds(columns: TableSchema) -> bool:
    try:
        require_holdable(columns)
    except SchemaError:
        return False
    return True


def _can_declare(config: TableConfig, files: Iterable[AddedFile]) -> bool:
    """Return whether Delta can represent the partition values of each of these files."""
    return all(partition_texts(config, file) is not None for _, file in files)


def _require_ours(state: LogState, table: str) -> None:
    if state.external:
        raise ForeignExport(
            f"Version {state.version} of the Delta log was written by another writer, so that it may show other rows "
            "than this table. Give others no permission to write here, and export with rebuild=True (hoodoo export "
            "PATH --delta --rebuild): it writes a version that shows this table again.",
            format="delta",
            version=state.version,
        )
    if state.table != table:
        raise ForeignExport(
            f"The Delta log is that of another table ({state.table}). Export with rebuild=True (hoodoo export PATH "
            "--delta --rebuild) to make it this table's.",
            format="delta",
            version=state.version,
        )
