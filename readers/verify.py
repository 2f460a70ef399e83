"""Verification of a whole table."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import HoodooError, SnapshotExpired
from hoodoo.format import properties as java
from hoodoo.format import transforms
from hoodoo.format.equality import equal_values
from hoodoo.format.hashing import hash64
from hoodoo.format.keys import compute_partition_paths
from hoodoo.format.log.block import find_base_instants
from hoodoo.format.names import PARTITION_PATH, RECORD_KEY, instant_of_ms, parse_data_file
from hoodoo.format.timeline import avro as timeline_avro
from hoodoo.index import index_of
from hoodoo.readers.predicate import checks
from hoodoo.readers.slices import damage, slices
from hoodoo.redact import printable
from hoodoo.storage.store import Store, digest
from hoodoo.timeline.history import History
from hoodoo.timeline.hudi import archived_timeline
from hoodoo.timeline.hudi.commit_metadata import encode_commit_metadata
from hoodoo.timeline.hudi.publish import SLOW_WRITE_MS, find_publication_file, instants
from hoodoo.timeline.instant import WRITES, State
from hoodoo.timeline.layout import CHECKPOINTS, PROPERTIES, SLOTS, TURN_REQUESTS, checkpoint_key, slot_key
from hoodoo.timeline.properties import hoodie_properties
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots import keyset, watermark
from hoodoo.timeline.slots.slot import DataFile, Slot
from hoodoo.timeline.views import checkpoint
from hoodoo.timeline.views.view import FileGroup, View, apply

_CHECKS = 5  # more are not needed, because each one takes a newer snapshot


@dataclass(frozen=True)
class Problem:
    """Problem found in a table.

    Attributes:
        code: The kind of problem, one of `CODES`.
        file: The path of the affected file.
        text: A description of the problem.
    """

    code: str
    file: str
    text: str


CODES = {
    "PROPERTIES": "hoodie.properties is missing or damaged, or its checksum is wrong",
    "SLOT": "a slot is damaged, or is missing although later slots exist",
    "CHAIN": "a slot does not follow the previous slot: the sequence was forked, or a slot was replaced",
    "SHORTENED": (
        "a completed instant has no slot: the end of the slot sequence was lost, or another engine wrote to the table"
    ),
    "CHECKPOINT": "a checkpoint is damaged, or differs from the slots",
    "UNPUBLISHED": "a slot is not published, so Hudi's readers do not see it",
    "PUBLISHED": "the published instant of a slot differs from the slot",
    "MISSING_FILE": "a data file of a readable snapshot is missing",
    "DAMAGED_FILE": "the content of a data file does not match the size and digest in its slot",
    "UNREADABLE": "rows of an undamaged file cannot be read: maintenance.salvage() keeps all other rows",
    "DUPLICATE_KEY": "a record key occurs more than once in a partition",
    "WRONG_PARTITION": "rows are in the folder of another partition",
    "INDEX": "an index entry is missing or damaged, or does not contain exactly the keys of its file",
    "POSITIONS": "a log refers to rows of its base file that have other keys, so Apache Hudi shows wrong rows",
    "KEY_SET": "a key set of a slot is missing or damaged",
    "CHECK": "rows fail a check: they are older than the check, or another engine wrote them",
    "ROWS": "the row count of a base file differs from its slot",
}


@dataclass
class Report:
    """Report on the verification of a table.

    Attributes:
        slots: The number of checked slots.
        files: The number of checked data files.
        bytes: The total size of the checked data files, in bytes.
        rows: The number of checked rows of the newest snapshot.
        problems: All problems that the verification found.
    """

    slots: int = 0
    files: int = 0
    bytes: int = 0
    rows: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if no problem was found."""
        return not self.problems


def verify_table(store: Store, config: TableConfig) -> Report:
    """Verify a whole table.

    Other processes may write to it. If the table changed during the check, a problem may only be an effect of a newer
    commit or of cleaning. The table is then checked again, and the report contains the problems that both checks found.

    Raises:
        SnapshotExpired: Files of the table were deleted during every check.
    """
    first: Report | None = None
    for _ in range(_CHECKS):
        before = _newest_slots(store)
        try:
            report = TableVerifier(store, config).run()
        except FileNotFoundError:
            continue  # cleaning or archiving deleted the file after it was listed
        if report.ok or _newest_slots(store) == before:
            return report
        if first is not None:
            first_problems = {(problem.code, problem.file) for problem in first.problems}
            report.problems = [problem for problem in report.problems if (problem.code, problem.file) in first_problems]
            return report
        first = report
    raise SnapshotExpired(
        "Files of the table were deleted during the check. Run it again while fewer writers and workers are active.",
        path=store.uri,
    )


def _newest_slots(store: Store) -> tuple[int, int]:
    try:
        return watermark.deleted_up_to(store), History(store).head().seq
    except (FileNotFoundError, HoodooError):
        return 0, 0


class TableVerifier:
    """Verification of one table.

    Args:
        store: The store of the table.
        config: The configuration to use if the properties cannot be read. Columns, options and checks always come from
            the slots.
    """

    def __init__(self, store: Store, config: TableConfig) -> None:
        self.store, self.config = store, config
        self.keys_by_index = index_of(self.store)  # not shared, because a cache could hide damage
        self.report = Report()
        self.checks: tuple[checks.Check, ...] = ()

    def run(self) -> Report:
        self._check_properties()
        view = self._replay_slots()
        if view is None:
            return self.report
        with suppress(HoodooError):  # the problem PROPERTIES is already reported
            self.config = hoodie_properties.load(self.store)
        self.config = hoodie_properties.apply_settings(self.config, view.settings, view.schemas)
        self.checks = self._load_checks()
        self._report_instants_without_slot(view)
        self._check_superseded_files(view)
        for partition in view.partitions:
            self._check_partition(partition, list(view.groups([partition])))
        return self.report

    def _report_problem(self, code: str, file: str, text: str) -> None:
        self.report.problems.append(Problem(code, file, text))

    def _check_properties(self) -> None:
        try:
            values = java.parse_properties(self.store.get(PROPERTIES))
        except (FileNotFoundError, HoodooError) as problem:
            self._report_problem("PROPERTIES", PROPERTIES, f"hoodie.properties cannot be read: {problem}")
            return
        expected = java.checksum(values.get("hoodie.database.name", ""), values.get("hoodie.table.name", ""))
        if values.get("hoodie.table.checksum", expected) != expected:
            self._report_problem(
                "PROPERTIES", PROPERTIES, "the checksum of hoodie.properties is wrong, so Apache Hudi refuses the table"
            )

    # ---- the sequence
    def _replay_slots(self) -> View | None:
        # Returns None if a slot is damaged or does not follow the previous one.
        fresh = History(self.store)
        try:
            view = self._view_before_oldest_slot(fresh)
            head = fresh.head().seq
        except HoodooError as problem:
            code = (
                "CHAIN"
                if "does not follow" in problem.message
                else "CHECKPOINT"
                if problem.details.get("file") == CHECKPOINTS
                else "SLOT"
            )
            self._report_problem(code, str(problem.details.get("file", "")), problem.message)
            return None
        self._report_slots_after_gap(head)
        checkpoints = {key for key, _ in self.store.list(CHECKPOINTS)}
        long_ago, unpublished = archived_timeline.newest(self.store), dict[int, str]()
        for seq in range(view.seq + 1, head + 1):
            try:
                slot, sha = fresh._read(seq)
            except HoodooError as problem:
                self._report_problem("SLOT", slot_key(seq), problem.message)
                return None
            if slot.prev != view.sha:
                self._report_problem(
                    "CHAIN",
                    slot_key(seq),
                    f"slot {seq} does not follow slot {seq - 1}: the sequence was forked, or a slot was replaced",
                )
                return None
            self.report.slots += 1
            if not self._is_published(slot, view) and slot.instant > long_ago:
                unpublished[seq] = find_publication_file(slot)
            view = apply(view, slot, sha)
            self._check_key_sets(slot, view)
            if (key := checkpoint_key(seq)) in checkpoints:
                self._check_checkpoint(key, view)
        for seq, key in unpublished.items():
            if not view.is_rolled_back_by_other_engine(seq):
                self._report_problem(
                    "UNPUBLISHED",
                    key,
                    f"slot {seq} is not published, so Hudi's readers do not see it. Open the table to publish it",
                )
        return view

    def _view_before_oldest_slot(self, fresh: History) -> View:
        # The view is empty, or comes from the oldest checkpoint after the archived slots.
        archived = watermark.deleted_up_to(self.store)
        if not archived:
            return View()
        keys = [key for key, _ in self.store.list(CHECKPOINTS) if key >= checkpoint_key(archived)]
        return checkpoint.read_checkpoint(self.store, keys[0]) if keys else fresh.state(archived)

    def _report_slots_after_gap(self, head: int) -> None:
        # These files exist although the slot before them is missing.
        for key, _ in self.store.list(SLOTS, slot_key(head)):
            if key.startswith(TURN_REQUESTS):
                continue  # the turn request of a writer
            self._report_problem(
                "SLOT",
                key,
                (
                    f"slot {head + 1} before it is missing. Restore the missing slots. If this file is not a "
                    "slot of the table, remove it"
                ),
            )

    def _is_published(self, slot: Slot, before: View) -> bool:
        # An instant that differs from the slot is reported.
        key = find_publication_file(slot)
        try:
            published = self.store.get(key)
        except FileNotFoundError:
            return False
        if slot.commits and not slot.published and not _matches_slot(published, slot, before):
            self._report_problem(
                "PUBLISHED",
                key,
                f"the published instant differs from slot {slot.seq}. Delete it and open the table, which recreates it",
            )
        return True

    def _check_key_sets(self, slot: Slot, view: View) -> None:
        if slot.completed_at < view.completed_at - SLOW_WRITE_MS:
            return  # no longer needed; cleaning deletes them
        for reference in (*slot.inserted, *slot.deleted):
            if "file" in reference and slot.seq >= view.min_readable:
                try:
                    keyset.load(self.store, [reference], self.keys_by_index.key_hashes)
                except HoodooError as problem:
                    self._report_problem("KEY_SET", reference["file"], problem.message)

    def _report_instants_without_slot(self, view: View) -> None:
        newest = instant_of_ms(view.completed_at)
        for instant in instants(self.store):
            if instant.state is State.COMPLETED and instant.action in WRITES and instant.completed > newest:
                self._report_problem(
                    "SHORTENED",
                    instant.key,
                    f"it has no slot: slots after {view.seq} were lost, or another engine wrote to the table",
                )

    def _check_checkpoint(self, key: str, view: View) -> None:
        try:
            if checkpoint.read_checkpoint(self.store, key, heal=False) != view:
                self._report_problem(
                    "CHECKPOINT", key, "the checkpoint differs from the slots. Delete it: the slots are authoritative"
                )
        except FileNotFoundError:
            return  # archiving has deleted it
        except HoodooError as problem:
            self._report_problem("CHECKPOINT", key, f"{problem.message} Delete it: the slots are authoritative")

    # ---- files
    def _check_superseded_files(self, view: View) -> None:
        # Files that only older snapshots need are checked by existence and size. Files that cleaning may already delete
        # can be missing.
        for entry in view.superseded:
            needed = entry.dropped > view.min_readable or any(map(entry.is_needed_at, view.savepoints.values()))
            if not needed:
                continue
            readers = f"snapshots from slot {entry.added} to {entry.dropped - 1} need it"
            try:
                size = self.store.size(entry.path)
            except FileNotFoundError:
                self._report_problem("MISSING_FILE", entry.path, f"the file is missing; {readers}")
                continue
            if entry.size and size != entry.size:
                self._report_problem(
                    "DAMAGED_FILE",
                    entry.path,
                    f"it is {size} bytes long, but the commit recorded {entry.size}; {readers}",
                )

    def _check_partition(self, partition: str, groups: list[FileGroup]) -> None:
        seen: list[tuple[FileGroup, np.ndarray]] = []
        for group in groups:
            if self._has_sound_content(group) and self._is_readable(group):
                rows = self._check_live_rows(group)
                if rows is not None:
                    seen.append((group, rows))
        if twice := self._count_duplicate_keys(seen):
            self._report_problem(
                "DUPLICATE_KEY", partition, f"{twice} record keys of partition {partition!r} occur more than once"
            )

    def _count_duplicate_keys(self, seen: list[tuple[FileGroup, np.ndarray]]) -> int:
        # Keys are read only for hashes that occur twice.
        if not seen:
            return 0
        hashes = np.sort(np.concatenate([group_hashes for _, group_hashes in seen]))
        twice = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
        schema, keys = slices.schema_of(self.config, [RECORD_KEY]), list[pa.Array]()
        for group, group_hashes in seen:
            if len(twice) and (suspects := np.isin(group_hashes, twice)).any():
                rows = slices.read_file_slice(self.store, self.config, group, schema)[RECORD_KEY]
                keys += rows.filter(pa.array(suspects)).chunks
        return sum(map(len, keys)) - len(pa.chunked_array(keys, pa.string()).unique())

    def _has_sound_content(self, group: FileGroup) -> bool:
        sound = True
        for entry in group.files():
            for path, (size, sum_) in entry.file.changes.items():
                self._is_file_sound(path, size, sum_)
            sound = self._is_file_sound(entry.file.path, entry.file.size, entry.file.digest) and sound
        return sound

    def _is_readable(self, group: FileGroup) -> bool:
        # Each unreadable block and row is reported.
        before = len(self.report.problems)
        for entry in group.files():
            try:
                for part in damage.unreadable(self.store, self.config, entry.file):
                    self._report_problem("UNREADABLE", entry.file.path, f"{part.location}: {part.why.rstrip('.')}")
            except HoodooError as problem:
                self._report_problem("DAMAGED_FILE", entry.file.path, problem.message)
        return len(self.report.problems) == before

    def _is_file_sound(self, path: str, size: int, sum_: str) -> bool:
        self.report.files += 1
        try:
            data = self.store.get(path)
        except FileNotFoundError:
            self._report_problem("MISSING_FILE", path, "the file is missing")
            return False
        self.report.bytes += len(data)
        if len(data) != size or sum_ and digest(data) != sum_:
            self._report_problem("DAMAGED_FILE", path, "its content does not match the size and digest in the slot")
            return False
        return True

    def _check_live_rows(self, group: FileGroup) -> np.ndarray | None:
        # Returns the hashes of the live keys, or None if they cannot be read.
        try:
            checked = sorted(set().union(*(check.columns for check in self.checks)))
            columns = list(dict.fromkeys([RECORD_KEY, PARTITION_PATH, *self.config.partition_sources, *checked]))
            if not self._has_valid_positions(group, self._check_base_file(group)):
                return None
            rows = slices.read_file_slice(self.store, self.config, group, slices.schema_of(self.config, columns))
        except HoodooError as problem:
            self._report_problem("DAMAGED_FILE", str(problem.details.get("file", "")), problem.message)
            return None
        self.report.rows += len(rows)
        path = group.base.file.path if group.base else group.logs[0].file.path
        paths = compute_partition_paths(rows, self.config.partition_by, self.config.hive_style, self.config.url_encode)
        if len(rows) and not pc.all(pc.equal(paths.dictionary, group.partition)).as_py():
            self._report_problem("WRONG_PARTITION", path, f"rows of another partition are in {group.partition!r}")
        self._check_generated_columns(rows, path)
        self._report_failing_checks(rows, path)
        return hash64(rows[RECORD_KEY])

    def _check_generated_columns(self, rows: pa.Table, path: str) -> None:
        for column, transform in self.config.transforms.items():
            values = transforms.compute_partition_values(transform, rows[transform.column].combine_chunks())
            wrong = np.flatnonzero(~equal_values(rows[column].combine_chunks(), values))
            if len(wrong):
                self._report_problem(
                    "WRONG_PARTITION",
                    path,
                    f"{len(wrong)} rows of its file group have a value of {column!r} that differs from {transform}; "
                    f"the first has key {printable(rows[RECORD_KEY][int(wrong[0])].as_py())}. Another engine "
                    f"wrote them. Delete these rows, and insert them without {column!r}",
                )

    def _report_failing_checks(self, rows: pa.Table, path: str) -> None:
        for check in self.checks:
            failing = check.failing(rows)
            if len(failing):
                self._report_problem(
                    "CHECK",
                    path,
                    f"{len(failing)} rows of its file group fail the check {check.name!r} "
                    f"({printable(check.text)}); the first has key "
                    f"{printable(rows[RECORD_KEY][int(failing[0])].as_py())}. Correct the rows with upsert or "
                    "delete, or change the check with set_checks()",
                )

    def _load_checks(self) -> tuple[checks.Check, ...]:
        try:
            return checks.load_checks(self.config)
        except HoodooError as problem:
            self._report_problem("CHECK", PROPERTIES, problem.message)
            return ()

    def _check_base_file(self, group: FileGroup) -> pa.ChunkedArray:
        # Returns the record keys in row order.
        if group.base is None:
            return pa.chunked_array([], pa.string())
        file = group.base.file
        keys = slices.read_base(self.store, self.config, file, slices.schema_of(self.config, [RECORD_KEY]))[RECORD_KEY]
        if len(keys) != file.rows:
            self._report_problem(
                "ROWS", file.path, f"it contains {len(keys)} rows, but the commit recorded {file.rows}"
            )
        self._check_index_entry(file, keys)
        return keys

    def _check_index_entry(self, file: DataFile, keys: pa.ChunkedArray) -> None:
        hashes = hash64(keys)
        try:
            if not np.array_equal(self.keys_by_index.key_hashes(file.index), np.sort(hashes)):
                self._report_problem(
                    "INDEX", file.index, f"the index entry does not contain exactly the keys of {file.path}"
                )
                return
            rows = self.keys_by_index.rows(file, keys, hashes)
        except HoodooError as problem:
            self._report_problem("INDEX", file.index, problem.message)
            return
        if file.order and (rows is None or not np.array_equal(rows, np.arange(len(keys)))):
            self._report_problem("INDEX", file.index, f"the row positions in the index entry differ from {file.path}")

    def _has_valid_positions(self, group: FileGroup, keys: pa.ChunkedArray) -> bool:
        if group.base is None:
            return True
        before = len(self.report.problems)
        schema, parsed = slices.schema_of(self.config, [RECORD_KEY]), parse_data_file(group.base.file.name)
        for log in (placed.file for placed in group.logs):
            named = set(find_base_instants(slices.read_verified_file(self.store, log)))
            trusted = log.order and log.order == group.base.file.order
            if not trusted and (parsed is None or named != {parsed.instant}):
                continue  # no reader uses these positions
            for part in slices.read_log(self.store, self.config, log, schema, by_row=True):
                at, logged_keys = part.at, part.rows[RECORD_KEY]
                if at is None or at.max(initial=0) >= len(keys) or not keys.take(pa.array(at)).equals(logged_keys):
                    self._report_problem(
                        "POSITIONS", log.path, f"it refers to rows of {group.base.file.path} that have other keys"
                    )
                    break
        return len(self.report.problems) == before


def _matches_slot(published: bytes, slot: Slot, before: View) -> bool:
    # The table may or may not have kept a change log at that time, so both forms are valid.
    try:
        schema = timeline_avro.decode_timeline_file(published)["extraMetadata"]["schema"]
        return isinstance(schema, str) and published in (
            encode_commit_metadata(slot, schema),
            encode_commit_metadata(slot, schema, before=before),
        )
    except (HoodooError, KeyError, TypeError):
        return False
