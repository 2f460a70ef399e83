"""Export of a table as a Delta log.

Each commit that changed base files gets one Delta version. A version is created only if it does not exist, and its
bytes depend only on slots. Exporters therefore need no coordination: a slower exporter finds its own bytes, or
continues from the existing version. A crash between two writes leaves a log of complete versions, and the next export
continues from this log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from hoodoo.errors import ForeignExport, OptionError, SchemaError, SnapshotExpired
from hoodoo.exports.attempts import export_with_retries
from hoodoo.exports.base_files import (
    IDLE_SLOTS,
    BaseFileChanges,
    CommitChanges,
    can_continue_export,
    first_commit_to_export,
    live,
    require_no_partition_at,
    unchanged,
    yield_commit_changes,
)
from hoodoo.exports.delta import actions
from hoodoo.exports.delta.checkpoint import (
    DeltaCheckpoint,
    create_delta_checkpoint,
    last_checkpoint_content,
    update_delta_checkpoint,
)
from hoodoo.exports.delta.delta_schema import (
    Json,
    format_partition_values,
    require_supported_columns,
    supports_partition_values,
)
from hoodoo.exports.delta.log import (
    FOLDER,
    NEWEST_CHECKPOINT,
    DeltaLogState,
    Identity,
    checkpoint_key,
    complete_checkpoint_files,
    delta_commit_file_path,
    delta_versions_in_files,
    identity,
    list_changed_files,
    list_live_files,
    newest,
    state_of,
)
from hoodoo.exports.delta.overlaid import create_file_actions
from hoodoo.exports.overlays import (
    LogFileChangesCache,
    covered,
    create_unused_file_test,
    delete_old_unused_overlays,
    digest_of,
)
from hoodoo.exports.request import ExportRequest
from hoodoo.exports.results import DeltaExport
from hoodoo.exports.writing import MetadataFileWriter
from hoodoo.format.table_schema import TableSchema
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.properties.table_options import DELTA
from hoodoo.timeline.views.file_group import AddedFile
from hoodoo.timeline.views.view import View

_CHECKPOINT_EVERY = 10
_FILES_PER_VERSION = 100
# A checkpoint is written every max(10, files / 100) versions, so that its cost per version is that of ten files.
_ENABLE_FEED = "ENABLE CHANGE DATA FEED"
# Operation in the `commitInfo` of a version that only enables the change data feed.
_NO_MERGED_FEED = (
    "The Delta log has a change data feed: expected mode 'read_optimized', got 'merged'. Pass mode='read_optimized' "
    f"(--mode read_optimized), or delete the folder {FOLDER} of the table and export again without change_feed."
)
_WHOLE = "EXPORT"
# Operation in the `commitInfo` of a version that replaces the whole contents of the table.


def require_exportable(config: TableConfig, view: View) -> None:
    require_supported_columns(config.columns)
    require_no_partition_at(view, FOLDER.rstrip("/"))


def export_to_delta(request: ExportRequest) -> tuple[DeltaExport, int]:
    """Export the table to its Delta log.

    Only missing versions are written. If logs are merged, one version covers all slots since the last export. Returns
    the export result, and the slot that readers now see. Raises ForeignExport if another writer committed to the Delta
    log, or if the log belongs to another table.
    """
    remedy = f"Delete the folder {FOLDER} of the table and export again; the folder contains no rows."
    return export_with_retries(request, DELTA, FOLDER, remedy, _Exporter(request).run)


class _Exporter:
    def __init__(self, request: ExportRequest) -> None:
        self.writing, self.store = MetadataFileWriter(request.store), request.store
        self.history, self.config = request.history, request.config
        self.now_ms, self.rebuild, self.overlays, self.versions = request.now_ms, request.rebuild, request.overlays, 0
        self.change_feed = request.change_feed

    def run(self, until: int) -> tuple[DeltaExport, int]:
        existing, can_continue = newest(self.store), False
        if existing.feed and self.overlays:
            raise OptionError(_NO_MERGED_FEED, option="mode")
        # a slow exporter named a checkpoint that another one had deleted; without the hint, readers list the log
        if existing.misled:
            self.store.delete(NEWEST_CHECKPOINT)
        if existing.version >= 0 and not self.rebuild:
            _require_ours(existing, self.history.known_head().table)
            can_continue = can_continue_export(self.history, existing.slot, existing.instant)
            # another exporter has exported newer slots, or slots that are now archived
            if existing.slot > until or not can_continue:
                until = self.history.head().seq
                can_continue = can_continue_export(self.history, existing.slot, existing.instant)
        head = self.history.state(until)
        state = existing
        if self.overlays:
            state = self._write_merged_table(self.overlays, existing, head, can_continue)
        elif existing.version < 0:
            state = self._write_whole_table(
                replace(existing, feed=self.change_feed), self.history.state(self._first_slot_to_export(until))
            )
        elif existing.overlays or not can_continue:
            state = self._write_whole_table(existing, head)
        if self.change_feed and not state.feed:
            state = self._enable_change_feed(state, self.history.state(state.slot))
        if state.slot < until and not self.overlays:
            for step in yield_commit_changes(self.history, state.slot, until):
                state = self._write_slot(state, step)
        if head.min_readable > 1:
            self._delete_old_versions(head.min_readable)
            delete_old_unused_overlays(self.store, create_unused_file_test(self.history), self.now_ms)
        return DeltaExport(state.version, self.versions, self.writing.files, self.writing.bytes), until

    def _first_slot_to_export(self, until: int) -> int:
        # The oldest readable slot after which Delta supports all columns.
        first = min(first_commit_to_export(self.history), until)
        entries = self.config.schemas.entries
        for (_, number, _), (end, _, _) in zip(entries, entries[1:], strict=False):
            columns = self.config.schemas.schema(number)
            if columns is not None and not _holds(columns):
                first = max(first, end)
        return first

    def _config(self, view: View) -> TableConfig:
        return self.config.with_schemas(view.schemas)

    # ---- versions
    def _enable_change_feed(self, existing: DeltaLogState, view: View) -> DeltaLogState:
        # The version changes no files. Later versions have the change data feed.
        state = replace(existing, version=existing.version + 1, at_ms=existing.at_ms + 1, feed=True)
        info = actions.create_commit_info(_ENABLE_FEED, state.at_ms, False, state.said())
        self._commit(state, [info, *self._head_actions(state, self._config(view), view)])
        return self._write_due_checkpoint(state, view)

    def _write_whole_table(self, existing: DeltaLogState, view: View) -> DeltaLogState:
        config, files = self._config(view), live(view)
        partitioned = supports_partition_values(config) and _can_represent_partitions(config, files.values())
        partitioned &= (
            existing.partitioned or not existing.feed or existing.version < 0
        )  # Spark's feed would lose partition values
        state = self._next_state(existing, config, view, partitioned)
        wanted = _adds(config, partitioned, state.at_ms, sorted(files.items()), True)
        log_files = list_live_files(self.store, existing.version) if existing.version >= 0 else {}
        self._commit(state, self._actions_to_reach(state, config, view, log_files, wanted))
        return self._write_due_checkpoint(state, view, at_once=existing.version >= 0)

    def _write_merged_table(
        self, overlays: LogFileChangesCache, existing: DeltaLogState, view: View, goes_on: bool
    ) -> DeltaLogState:
        # File groups with logs get overlays. Returns `existing` if the Delta log already has these contents.
        config, groups = self._config(view), covered(view)
        digest = digest_of(config, groups)
        if goes_on and (existing.slot, existing.overlays) == (view.seq, digest):
            return existing
        state = replace(self._next_state(existing, config, view, partitioned=False), overlays=digest)
        log_files = list_live_files(self.store, existing.version) if existing.version >= 0 else {}
        is_comparable = (
            goes_on and bool(existing.overlays) and not existing.partitioned and existing.schema == state.schema
        )
        wanted = create_file_actions(
            self.writing, overlays, config, view, groups, log_files if is_comparable else {}, state.at_ms
        )
        is_unchanged = (
            is_comparable and {identity(wanted_action["add"]) for wanted_action in wanted} == log_files.keys()
        )
        if is_unchanged and view.seq - existing.slot < IDLE_SLOTS:
            return existing
        self._commit(
            state, self._actions_to_reach(state, config, view, log_files, wanted, rewrites_all=not is_comparable)
        )
        return self._write_due_checkpoint(state, view, at_once=existing.version >= 0 and not goes_on)

    def _actions_to_reach(
        self,
        state: DeltaLogState,
        config: TableConfig,
        view: View,
        log_files: Mapping[Identity, Json],
        wanted: Sequence[Json],
        rewrites_all: bool = True,
    ) -> list[Json]:
        # `log_files` are the files in the log before this version. If `rewrites_all` is True, the actions of unchanged
        # files are written again, because columns or partitions changed.
        kept = {identity(action["add"]) for action in wanted} & log_files.keys()
        heads = self._head_actions(state, config, view)
        return [
            actions.create_commit_info(_WHOLE, state.at_ms, False, state.said()),
            *(heads if rewrites_all else heads[-1:]),
            *(
                actions.create_remove_action(action, state.at_ms)
                for log_identity, action in sorted(log_files.items())
                if log_identity not in kept
            ),
            *(
                {"add": {**action["add"], "dataChange": identity(action["add"]) not in kept}}
                for action in wanted
                if rewrites_all or identity(action["add"]) not in kept
            ),
        ]

    @staticmethod
    def _head_actions(state: DeltaLogState, config: TableConfig, view: View) -> list[Json]:
        merges = bool(state.overlays)
        return [
            actions.create_protocol_action(config, merges, state.feed),
            actions.create_metadata_action(config, view.table, state.partitioned, merges, state.feed),
            actions.transaction(state.slot, state.at_ms),
        ]

    def _write_slot(self, existing: DeltaLogState, step: CommitChanges) -> DeltaLogState:
        # Returns `existing` if the slot changed nothing for Delta readers.
        view, changes = step.view, step.changes
        config = self._config(view)
        reshaped = config.columns.id != existing.schema
        if not changes and not reshaped and view.seq - existing.slot < IDLE_SLOTS:
            return existing
        partitioned = existing.partitioned and _can_represent_partitions(config, changes.added.values())
        state = self._next_state(existing, config, view, partitioned)
        at_ms, slot = state.at_ms, step.slot
        version_actions = [
            actions.create_commit_info(slot.operation or slot.action.upper(), at_ms, not changes.removed, state.said())
        ]
        heads = self._head_actions(state, config, view)
        version_actions += heads if reshaped or partitioned != existing.partitioned else heads[-1:]
        version_actions += self._files(config, state, changes)
        # write the other files again, because their bounds or partitions differ
        if reshaped or partitioned != existing.partitioned:
            others = {path: file for path, file in live(view).items() if path not in changes.added}
            version_actions += _adds(config, partitioned, at_ms, others.items(), False)
        self._commit(state, version_actions)
        return self._write_due_checkpoint(state, view)

    def _files(self, config: TableConfig, state: DeltaLogState, changes: BaseFileChanges) -> list[Json]:
        removed = sorted(changes.removed.items())
        at_ms, rows = state.at_ms, changes.changes_rows
        return [
            *(actions.remove(config, file, state.partitioned, at_ms, rows) for _, (_, file) in removed),
            *_adds(config, state.partitioned, at_ms, sorted(changes.added.items()), rows),
        ]

    def _next_state(self, existing: DeltaLogState, config: TableConfig, view: View, partitioned: bool) -> DeltaLogState:
        # Its in-commit timestamp is greater than the previous one.
        return DeltaLogState(
            existing.version + 1,
            max(view.completed_at, existing.at_ms + 1),
            view.table,
            view.seq,
            view.instant,
            config.columns.id,
            partitioned,
            feed=existing.feed,
            checkpoint=existing.checkpoint,
        )

    def _commit(self, state: DeltaLogState, version_actions: Sequence[Json]) -> None:
        self.writing.create_once(delta_commit_file_path(state.version), actions.encode(version_actions))
        self.versions += 1

    # ---- checkpoints, and deletion of old versions
    def _write_due_checkpoint(self, state: DeltaLogState, view: View, at_once: bool = False) -> DeltaLogState:
        # A checkpoint replaces earlier versions for readers.
        since = state.version - max(state.checkpoint, 0)
        if not at_once and since < max(_CHECKPOINT_EVERY, view.totals.bases // _FILES_PER_VERSION):
            return state
        self._write_checkpoint(state, view, is_newest=True, from_log=not at_once)
        return replace(state, checkpoint=state.version)

    def _write_checkpoint(self, state: DeltaLogState, view: View, is_newest: bool, from_log: bool) -> None:
        """Write a Delta checkpoint.

        If `from_log` is True, it is built from the previous checkpoint and the versions since then. This takes a tenth
        of the time that it takes to build it from the view.
        """
        config = self._config(view)
        heads = self._head_actions(state, config, view)
        content = (self._checkpoint_from_log(state, view, heads) if from_log else None) or self._from_view(
            state, view, heads
        )
        self.writing.replace(checkpoint_key(state.version), content.data)
        if is_newest:
            self.writing.replace(NEWEST_CHECKPOINT, last_checkpoint_content(state.version, content.files, len(heads)))

    def _checkpoint_from_log(self, state: DeltaLogState, view: View, heads: Sequence[Json]) -> DeltaCheckpoint | None:
        # Returns None if the previous checkpoint or a later version is missing or has unexpected contents.
        with suppress(FileNotFoundError, pa.ArrowException, OSError):
            before = self.store.get(checkpoint_key(state.checkpoint)) if state.checkpoint >= 0 else None
            changed = list_changed_files(self.store, state.checkpoint + 1, state.version + 1)
            content = update_delta_checkpoint(before, heads, changed)
            return content if state.overlays or content.files == len(live(view)) else None
        return None

    def _from_view(self, state: DeltaLogState, view: View, heads: Sequence[Json]) -> DeltaCheckpoint:
        if state.overlays:
            files = list_live_files(self.store, state.version)
            adds = [{"add": {**add_action, "dataChange": False}} for _, add_action in sorted(files.items())]
        else:
            adds = _adds(self._config(view), state.partitioned, view.completed_at, sorted(live(view).items()), False)
        return DeltaCheckpoint(create_delta_checkpoint(heads, adds), len(adds))

    def _delete_old_versions(self, readable: int) -> None:
        # The oldest remaining version is the one that shows slot `readable`, or else the first later version. It gets a
        # checkpoint first.
        names = self.store.names(FOLDER)
        versions, checkpoints = delta_versions_in_files(names), complete_checkpoint_files(names)
        kept: DeltaLogState | None = None
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
            self._write_checkpoint(
                kept,
                view,
                is_newest=not any(checkpoint_version > kept.version for checkpoint_version in checkpoints),
                from_log=False,
            )
        for version in versions:
            if version < kept.version:
                self.store.delete(delta_commit_file_path(version))
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
        require_supported_columns(columns)
    except SchemaError:
        return False
    return True


def _can_represent_partitions(config: TableConfig, files: Iterable[AddedFile]) -> bool:
    return all(format_partition_values(config, file) is not None for _, file in files)


def _require_ours(state: DeltaLogState, table: str) -> None:
    if state.external:
        raise ForeignExport(
            f"Version {state.version} of the Delta log was written by another writer, so its rows may differ from "
            "those of this table. Remove the write permission of other writers, and export with rebuild=True (hoodoo "
            "export PATH --delta --rebuild) to write a version that shows this table again.",
            format="delta",
            version=state.version,
        )
    if state.table != table:
        raise ForeignExport(
            f"The Delta log belongs to another table ({state.table}). Export with rebuild=True (hoodoo export PATH "
            "--delta --rebuild) to replace its contents by this table.",
            format="delta",
            version=state.version,
        )
