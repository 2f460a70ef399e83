"""Import of commits by Apache Hudi, to adopt a table.

Each file of the new snapshot is inspected once, to compute its digest and the index entry that writes need. If hoodoo
and Hudi could see different rows afterwards, the adoption is refused with a reason before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hoodoo.engine.protocol import Engine
from hoodoo.errors import CorruptTable, DataError, TableNotFound, UnsupportedTable
from hoodoo.format.hashing import hash64
from hoodoo.format.keys import compute_partition_paths, compute_record_keys
from hoodoo.format.log.block import DataBlock, DeleteBlock, decode_log
from hoodoo.format.names import COMMIT_TIME, RECORD_KEY, ms_of_instant, parse_data_file
from hoodoo.format.parquet import base_file, statistics
from hoodoo.index import index_of
from hoodoo.merge.kernels import repeated
from hoodoo.readers.slices import slices
from hoodoo.storage.store import Store, digest
from hoodoo.timeline.history import History
from hoodoo.timeline.hudi import external_history
from hoodoo.timeline.hudi.external_columns import ExternalColumnHistory
from hoodoo.timeline.hudi.external_history import CompletedInstant, ExistingSlots, ExternalHistory
from hoodoo.timeline.hudi.external_positions import ExternalPositions
from hoodoo.timeline.hudi.publish import instants
from hoodoo.timeline.instant import COMPACTION, RESTORE, Instant, State
from hoodoo.timeline.layout import PROPERTIES, slot_key
from hoodoo.timeline.properties import hoodie_properties
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.properties.schema_history import SchemaHistory
from hoodoo.timeline.slots.slot import BASE, PLACED, DataFile, Slot, encode_commit_file, list_reader_features
from hoodoo.timeline.views.view import FileGroup, View, apply
from hoodoo.writers.batches.generated_columns import find_misplaced_rows

_UNFINISHED = ("clustering", "logcompaction", "indexing")


@dataclass(frozen=True)
class InspectedFile:
    """Data file by Apache Hudi, after its inspection.

    Attributes:
        file: The file, completed with its digest, row count, index entry and statistics.
        keys: The key hashes of the rows in a base file, or of the rows that a log file writes.
        placed: True if the partition of each row matches the table's partition transforms.
    """

    file: DataFile
    keys: np.ndarray
    placed: bool


@dataclass(frozen=True)
class InspectFile:
    store: Store
    config: TableConfig
    file: DataFile

    def __call__(self) -> InspectedFile:
        data = slices.read_verified_file(self.store, self.file)
        verified = replace(self.file, size=len(data), digest=digest(data), origin="hudi")
        return (
            self._inspect_base_file(verified, data)
            if self.file.kind == BASE
            else self._inspect_log_file(verified, data)
        )

    @property
    def _instant(self) -> str:
        parsed = parse_data_file(self.file.name)
        return parsed.instant if parsed else ""

    def _inspect_base_file(self, file: DataFile, data: bytes) -> InspectedFile:
        config = self.config
        names = list(dict.fromkeys([RECORD_KEY, *config.key, *config.partition_sources]))
        rows = base_file.read_base_file(pa.BufferReader(data), file.path, slices.schema_of(config, names))
        hashes = require_equal_key_encoding(rows, config, file)
        span = pc.min_max(rows[RECORD_KEY])
        ends = span["min"].as_py() or "", span["max"].as_py() or ""
        index = index_of(self.store)
        keys_in_file = index.keys_of_rows()
        keys_in_file.add(rows[RECORD_KEY], hashes)
        entry = index.store_entry(file.file_id, self._instant, ends, keys_in_file)
        stats = statistics.statistics_from_footer(
            pq.read_metadata(pa.BufferReader(data)),
            config.columns_of(file).arrow.append(pa.field(COMMIT_TIME, pa.string())),
        )
        completed = replace(file, rows=len(rows), index=entry.name, stats=stats)
        placed = not find_misplaced_rows(rows, config, np.zeros(len(rows), bool)).any()
        return InspectedFile(
            replace(completed, order=entry.order if entry.stored == entry.order else ""), hashes, placed
        )

    def _inspect_log_file(self, file: DataFile, data: bytes) -> InspectedFile:
        # An undamaged log keeps its digest. A log with a torn block is read as Hudi reads it, and gets no digest.
        try:
            blocks = decode_log(data, columns=[RECORD_KEY])
        except CorruptTable:
            blocks, file = decode_log(data, columns=[RECORD_KEY], strict=False), replace(file, digest="")
        empty: list[np.ndarray] = [np.empty(0, np.uint64)]
        written = np.concatenate(
            empty + [hash64(block.rows[RECORD_KEY]) for block in blocks if isinstance(block, DataBlock)]
        )
        deleted_hashes = np.unique(
            np.concatenate(
                empty + [hash64(block.keys.cast(pa.string())) for block in blocks if isinstance(block, DeleteBlock)]
            )
        )
        index = (
            index_of(self.store).entry_for_deletes(file.file_id, self._instant, deleted_hashes)
            if len(deleted_hashes)
            else ""
        )
        completed = replace(
            file,
            rows=len(written) + len(deleted_hashes),
            updates=len(written),
            deletes=len(deleted_hashes),
            index=index,
        )
        return InspectedFile(completed, np.unique(written), self._is_placed(file))

    def _is_placed(self, log: DataFile) -> bool:
        config = self.config
        sources = {transform.column for transform in config.transforms.values()}
        if not sources:
            return True
        schema = slices.schema_of(
            config, dict.fromkeys([*config.merge_policy.needed_columns, *config.partition_sources])
        )
        for part in slices.read_log(self.store, config, log, schema):
            if part.columns is not None:  # a partial update has no partition columns to compare with
                if sources.intersection(part.columns):
                    return False
            elif (find_misplaced_rows(part.rows, config, part.delete) & ~part.delete).any():
                return False
        return True


def _look(task: InspectFile) -> InspectedFile:
    return task()


def require_equal_key_encoding(rows: pa.Table, config: TableConfig, file: DataFile) -> np.ndarray:
    """Check that hoodoo and Hudi encode keys equally.

    Otherwise an upsert would not find the stored row, and would insert it again. Partition paths are checked in the
    same way. `rows` contains the record keys and the columns from which they are computed. Raises UnsupportedTable.
    """
    try:
        keys = compute_record_keys(rows, config.key, config.partition_by)
        paths = compute_partition_paths(rows, config.partition_by, config.hive_style, config.url_encode).dictionary
    except DataError as problem:
        raise UnsupportedTable(
            f"File {file.path}: {problem.message} hoodoo can read this table, but not write to it.", file=file.path
        ) from None
    stored = rows[RECORD_KEY].combine_chunks()
    if not pc.all(pc.equal(stored, keys)).as_py() and len(rows):
        raise UnsupportedTable(
            (
                f"File {file.path} encodes record keys differently from hoodoo, maybe because of the table's key "
                "generator. hoodoo can read this table, but not write to it."
            ),
            file=file.path,
        )
    if len(rows) and not pc.all(pc.equal(paths, file.partition)).as_py():
        raise UnsupportedTable(
            f"File {file.path} contains rows that hoodoo would write to another partition. hoodoo can read this "
            "table, but not write to it.",
            file=file.path,
        )
    hashes = hash64(rows[RECORD_KEY])
    if len(suspects := repeated(hashes)) and len(rows[RECORD_KEY].take(pa.array(suspects)).unique()) < len(suspects):
        raise UnsupportedTable(
            f"File {file.path} contains a record key twice. Remove the duplicates with Apache Hudi first.",
            file=file.path,
        )
    return hashes


@dataclass(frozen=True)
class CheckRecordKeys:
    store: Store
    config: TableConfig
    file: DataFile

    def __call__(self) -> None:
        names = list(dict.fromkeys([RECORD_KEY, *self.config.key, *self.config.partition_by]))
        schema = slices.schema_of(self.config, names)
        require_equal_key_encoding(slices.read_base(self.store, self.config, self.file, schema), self.config, self.file)


def _check(task: CheckRecordKeys) -> None:
    task()


class CommitImporter:
    """Importer of commits by Apache Hudi."""

    def __init__(self, history: History, engine: Engine, now_ms: int) -> None:
        self.history, self.store, self.engine, self.now_ms = history, history.store, engine, now_ms

    def adopt_all_commits(self) -> None:
        hudi_history = ExternalHistory(self.store)
        head = hudi_history.head()
        if not head.seq:
            raise TableNotFound(
                f"Path {self.store.uri} has properties but no commits. If its creation was interrupted, call create "
                "again. If another engine truncated the table, open it after that engine's next write.",
                path=self.store.uri,
            )
        index_of(self.store).require_valid_for(group.file_id for group in head.groups())
        config = self._load_hudi_config(hudi_history)
        self._require_finished()
        self._store_missing_columns(config)
        live = {entry.file.path for group in head.groups() for entry in group.files()}
        inspected = self._look(config, [entry.file for group in head.groups() for entry in group.files()])
        self._require_keys_in_bases(head, inspected)
        slots = [
            replace(slot, files=tuple(inspected[file.path].file if file.path in live else file for file in slot.files))
            for slot in hudi_history.slots(0, head.seq)
        ]
        view = View()
        for slot in slots:
            view = self._write_slot(view, slot)
            if not view.seq:
                return  # another process adopts the table; the caller checks the result
        self.history.head()

    def adopt_commit(self, found: CompletedInstant) -> None:
        """Import a new commit by Apache Hudi.

        Compaction plans that precede the commit are imported first. The instant may also be a compaction plan. Does
        nothing if another process adopts the instant first.
        """
        view = self.history.head()
        if found.action != COMPACTION and ms_of_instant(found.completed) <= view.completed_at:
            return  # another process has adopted it in the meantime
        hudi_history = ExternalHistory(self.store, view.table)
        live = {
            entry.file.path for group in hudi_history.head().groups() for entry in group.files()
        }  # files of other groups may already be cleaned
        self._load_hudi_config(hudi_history)
        self._require_finished()
        names = external_history.names_since(self.store, view)
        for plan in external_history.unknown_plans(self.store, view, names):
            if view.seq and plan.time <= found.completed:
                view = self._write_slot(view, self._later_plan(view, plan))
        if not view.seq or found.action == COMPACTION:
            return
        slot = self._slot_from_instant(view, found)
        index_of(self.store).require_valid_for(file.file_id for file in slot.files)
        if found.action == RESTORE:
            slot = self._slot_from_restore(view, hudi_history, slot, found)
        self._adopt(view, self._complete_slot(slot, view, found, hudi_history), live)

    def _complete_slot(self, slot: Slot, view: View, found: CompletedInstant, theirs: ExternalHistory) -> Slot:
        columns = ExternalColumnHistory(hoodie_properties.load(self.store).created, view, self.store)
        if found.action != RESTORE:
            record = found.record(self.store)
            return ExternalPositions(view).add_commit(columns.add_commit(slot, record), record)
        # the record of a restore has no schemas, but earlier commits have; hoodoo's schema ids differ from Hudi's
        hudi_config = replace(hoodie_properties.load(self.store), created=theirs.created()).with_schemas(
            theirs.known_head().schemas
        )
        changed = columns.changed(slot, hudi_config.columns.arrow)
        columns_by_path = {file.path: columns.like(hudi_config.columns_of(file).arrow) for file in slot.files}
        return replace(
            changed,
            files=tuple(
                replace(file, schema=column.id) for file in changed.files if (column := columns_by_path[file.path])
            ),
        )

    # ---- requirements
    def require_adoptable(self, config: TableConfig, view: View) -> None:
        """Check that Hudi's commits can be imported.

        Raises UnsupportedTable if another key generator encoded the table's record keys. This check runs before a table
        is converted and adopted.
        """
        _require_known_generator(config)
        index_of(self.store).require_valid_for(group.file_id for group in view.groups())
        files = [group.base.file for group in view.groups() if group.base]
        self.engine.map(_check, [CheckRecordKeys(self.store, config, file) for file in files])

    def _load_hudi_config(self, hudi_history: ExternalHistory) -> TableConfig:
        config = hoodie_properties.load(self.store)
        _require_known_generator(config)
        return replace(config, created=hudi_history.created()).with_schemas(hudi_history.known_head().schemas)

    def _store_missing_columns(self, config: TableConfig) -> None:
        # Spark stores the columns only in commits, which Hudi may archive.
        if hoodie_properties.load(self.store).created != config.created:
            first = replace(config, schemas=SchemaHistory())
            values = {**config.raw, "hoodie.table.create.schema": first.schema_text}
            self.store.put(PROPERTIES, hoodie_properties.render(values, self.now_ms))

    def _unfinished_instants(self, action: str) -> list[Instant]:
        all_instants = instants(self.store)
        completed = {instant.time for instant in all_instants if instant.state is State.COMPLETED}
        return [
            instant
            for instant in all_instants
            if instant.action == action and instant.state is State.REQUESTED and instant.time not in completed
        ]

    def _require_finished(self) -> None:
        for action in _UNFINISHED:
            if pending := self._unfinished_instants(action):
                raise UnsupportedTable(
                    (
                        f"Apache Hudi has not finished the {action} at {pending[0].time}. Wait until it is finished, "
                        "or cancel it with Hudi."
                    ),
                    instant=pending[0].time,
                )

    def _require_keys_in_bases(self, view: View, inspected: dict[str, InspectedFile]) -> None:
        # Writes find a key only through base files, so they would miss a key that only a log file inserts.
        for group in view.groups():
            self._require_keys_in_base(group, inspected)

    def _require_keys_in_base(self, group: FileGroup, inspected: dict[str, InspectedFile]) -> None:
        for log in group.logs:
            log_content = inspected.get(log.file.path)
            if log_content is None:
                continue
            base = self._keys_of(group, inspected)
            if base is None or not np.isin(log_content.keys, base).all():
                raise UnsupportedTable(
                    f"Log file {log.file.path} inserts keys that are not in its base file. Compact the table with "
                    "Apache Hudi first.",
                    file=log.file.path,
                )

    def _keys_of(self, group: FileGroup, inspected: dict[str, InspectedFile]) -> np.ndarray | None:
        if group.base is None:
            return None
        base_content = inspected.get(group.base.file.path)
        return base_content.keys if base_content else index_of(self.store).key_hashes(group.base.file.index)

    # ---- one slot
    def _look(self, config: TableConfig, files: Iterable[DataFile]) -> dict[str, InspectedFile]:
        tasks = [InspectFile(self.store, config, file) for file in files]
        return {content.file.path: content for content in self.engine.map(_look, tasks)}

    def _adopt(self, view: View, slot: Slot, live: set[str]) -> View:
        config = hoodie_properties.load(self.store).with_schemas(apply(view, slot, "").schemas)
        inspected = self._look(config, [file for file in slot.files if file.path in live])
        files = tuple(inspected[file.path].file if file.path in inspected else file for file in slot.files)
        for group in apply(view, replace(slot, files=files), "").groups():
            self._require_keys_in_base(group, inspected)
        slot = replace(slot, files=files)
        if (
            config.transforms
            and files
            and all(file.path in inspected and inspected[file.path].placed for file in files)
        ):
            slot = replace(slot, placed=1, needs=(*slot.needs, PLACED))
        return self._write_slot(view, slot)

    def _write_slot(self, view: View, slot: Slot) -> View:
        slot = replace(slot, prev=view.sha)
        if used := list_reader_features(slot.files):
            slot = replace(slot, needs=tuple(dict.fromkeys((*slot.needs, *used))))
        try:
            self.store.write_once(slot_key(slot.seq), encode_commit_file(slot))
        except FileExistsError:
            return View()  # another process was faster
        return self.history.head()

    def _slot_from_instant(self, view: View, found: CompletedInstant) -> Slot:
        record = found.record(self.store)
        return external_history.convert_to_slot(
            self.store, view.table, view.seq + 1, view.completed_at, found, record, ExistingSlots(self.history)
        )

    # ---- plans and restores
    def _later_plan(self, view: View, found: CompletedInstant) -> Slot:
        slot = self._slot_from_instant(view, found)
        if slot.completed_at <= view.completed_at:
            raise UnsupportedTable(
                f"Apache Hudi planned a compaction at {found.time} while hoodoo was writing. Run this compaction with "
                "Hudi first.",
                instant=found.time,
            )
        return slot

    def _slot_from_restore(
        self, view: View, hudi_history: ExternalHistory, slot: Slot, found: CompletedInstant
    ) -> Slot:
        # The slot replaces the files of each changed file group by the files that Hudi's timeline now lists.
        undone_instants = found.record(self.store).get("instantsToRollback") or ()
        before = min((self._slot_that_completed(instant) for instant in undone_instants), default=slot.seq) - 1
        hudi_view = hudi_history.head()
        wanted_groups = {(group.partition, group.file_id): group for group in hudi_view.groups()}
        current_groups = {(group.partition, group.file_id): group for group in view.groups()}
        unchanged = {
            key
            for key, group in current_groups.items()
            if key in wanted_groups and _paths(group) == _paths(wanted_groups[key])
        }
        files = tuple(
            entry.file
            for key, group in sorted(wanted_groups.items())
            if key not in unchanged
            for entry in group.files()
        )
        return replace(
            slot,
            action="replacecommit",
            operation="RESTORE",
            position=before,
            files=files,
            replaced=tuple(sorted(key for key in current_groups if key not in unchanged)),
        )

    def _slot_that_completed(self, instant: str) -> int:
        head = self.history.known_head().seq
        start = self.history.find_last_completed_by(ms_of_instant(instant))
        return next(
            (
                seq
                for seq in range(start, head + 1)
                if self.history.slot(seq).instant == instant and not self.history.slot(seq).plan
            ),
            head + 1,
        )


def _require_known_generator(config: TableConfig) -> None:
    if not config.key or not config.folders_contain_partition_values:
        generator = config.key_generator or "a missing key"
        raise UnsupportedTable(
            f"Record keys and folders of the table come from {generator}, which hoodoo does not support for "
            "writes. hoodoo can read this table, but not write to it.",
            generator=config.key_generator,
        )


def _paths(group: FileGroup) -> Sequence[str]:
    return sorted(entry.file.path for entry in group.files())
