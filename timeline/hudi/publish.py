"""Publication of commits for readers with Apache Hudi.

All published content is derived from the slot. Any process may therefore publish a slot, even repeatedly. After a crash
between a slot and its publication, the next process publishes it. A publication is never undone (protocol rule 11).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

from hoodoo.errors import SnapshotExpired
from hoodoo.format.names import instant_of_ms, parse_data_file
from hoodoo.storage.store import Store
from hoodoo.timeline.environment import ResultHolder
from hoodoo.timeline.history import History
from hoodoo.timeline.holds import leases
from hoodoo.timeline.hudi import archived_timeline, commit_metadata, metadata_table
from hoodoo.timeline.instant import CLEAN, COMPACTION, OPTIONS, ROLLBACK, SAVEPOINT, Instant, State, parse_instant
from hoodoo.timeline.layout import CHECKPOINTS, INDEX, KEYS, MARKERS, PROPERTIES, PUBLISHED, TIMELINE, checkpoint_key
from hoodoo.timeline.properties import hoodie_properties, metadata_properties
from hoodoo.timeline.properties.config import METADATA_PARTITIONS, TableConfig
from hoodoo.timeline.properties.nesting import list_own_files
from hoodoo.timeline.slots.slot import LOG, PLANNED, ROLLED_BACK, Slot

NOTHING = b""
SLOW_WRITE_MS = 86_400_000
"""Maximum age of a write's instant relative to the head, in ms.

An older write is retried with a new instant, because data that it needs may be deleted (protocol rule 13).
"""


def find_publication_file(slot: Slot) -> str:
    """Find the file that marks a commit as published.

    If the file exists, the slot and all earlier slots are published.
    """
    if slot.published:
        return slot.published
    if slot.outcome == PLANNED:
        return Instant(slot.instant, COMPACTION, State.REQUESTED).key
    if slot.action in (SAVEPOINT, OPTIONS):
        return f"{PUBLISHED}{slot.seq:020d}"
    return Instant(slot.instant, slot.action, State.COMPLETED, instant_of_ms(slot.completed_at)).key


class ExternalRollback(Exception):
    def __init__(self, slot: Slot) -> None:
        super().__init__(slot.instant)
        self.slot = slot


def is_rolled_back_externally(store: Store, slot: Slot) -> bool:
    """Check whether another engine rolled back a commit.

    Only unpublished commits count. A rollback deletes the inflight file, which hoodoo never does.
    """
    return (
        slot.commits
        and slot.seq > 1
        and not store.exists(Instant(slot.instant, slot.action, State.INFLIGHT).key)
        and not store.exists(find_publication_file(slot))
    )


class Publisher:
    def __init__(self, store: Store, history: History) -> None:
        self.store, self.history = store, history
        self.published, self._backup_restores = 0, 0

    def publish_through(
        self,
        seq: int,
        config: TableConfig,
        new: int = 0,
        stands: bool = False,
        names: Collection[str] = (),
    ) -> None:
        """Publish commits in Hudi's timeline.

        Args:
            seq: The last slot to publish.
            config: The configuration of the table.
            new: A slot that this process just wrote, and that is therefore unpublished. 0 (default): no such slot.
            stands: True if the slot `new` is known not to be rolled back. Default False.
            names: Names of files that exist in Hudi's timeline, to save requests.

        Raises:
            RolledBackExternally: Another engine rolled back one of the slots.
        """
        # the store was restored from a backup, so the remembered state is invalid
        if self._backup_restores != self.history.backup_restores:
            self.published, self._backup_restores = 0, self.history.backup_restores
        first = seq - 1 if seq == new else seq
        while first > self.published and not self._is_published(self.history.slot(first), names):
            first -= 1
        for number in range(first + 1, seq + 1):
            self._publish(self.history.slot(number), config, stands and first + 1 == new)
        self.published = max(self.published, seq)

    def has_unpublished(self, seq: int, names: Collection[str] = ()) -> bool:
        return seq > self.published and not self._is_published(self.history.slot(seq), names)

    def _is_published(self, slot: Slot, names: Collection[str] = ()) -> bool:
        if (
            slot.published
            or find_publication_file(slot).removeprefix(TIMELINE) in names
            or self.store.exists(find_publication_file(slot))
        ):
            return True
        return slot.instant <= archived_timeline.newest(self.store) and was_published(self.store, slot.instant)

    def _publish(self, slot: Slot, config: TableConfig, stands: bool = False) -> None:
        if slot.outcome == PLANNED:
            self._create(find_publication_file(slot), commit_metadata.compaction_plan(slot.plan, self._sizes(slot)))
        elif slot.outcome == ROLLED_BACK:
            self._publish_rollback(slot)
        elif slot.action == CLEAN:
            self._publish_clean(slot, config)
        elif slot.action == SAVEPOINT:
            self._publish_savepoint(slot)
        elif slot.action == OPTIONS:
            self._publish_options(slot)
        else:
            if not stands and is_rolled_back_externally(self.store, slot):
                if self._is_published(slot):
                    return  # another process published it, and it is archived now
                raise ExternalRollback(slot)
            planned = self.history.slot(slot.plan_seq).plan if slot.action == COMPACTION else ()
            before = (
                self.history.state(slot.seq - 1)
                if config.change_log and slot.writes_rows and any(file.kind == LOG for file in slot.files)
                else None
            )
            schema = self._config_at(slot, config).schema_text
            metadata = commit_metadata.encode_commit_metadata(slot, schema, planned, before)
            self._update_metadata_table(slot, config)
            markers = ResultHolder(lambda: markers_of(self.store, slot.instant))
            self.history.together([lambda: self._create(find_publication_file(slot), metadata), markers])
            self.history.together([partial(remove_marker_and_empty_folders, self.store, key) for key in markers.result])

    def _config_at(self, slot: Slot, config: TableConfig) -> TableConfig:
        # A compaction has the columns of its plan, because it has the instant of the plan, which engines use for time
        # travel.
        known = self.history.known_head().schemas
        return config.with_schemas(known.up_to(slot.plan_seq if slot.action == COMPACTION else slot.seq))

    def _sizes(self, slot: Slot) -> dict[str, int]:
        view = self.history.state(slot.base_seq)
        groups = (view.group(planned.partition, planned.file_id) for planned in slot.plan)
        return {entry.file.path: entry.file.size for group in groups if group for entry in group.files()}

    def _create(self, key: str, data: bytes, durable: bool = True) -> None:
        try:
            self.store.create(key, data, durable)
        except FileExistsError:
            return  # another process was faster

    # ---- rollback: slot, requested, inflight, the target's files, its pending instants, completed
    def _publish_rollback(self, slot: Slot) -> None:
        files: dict[str, list[str]] = {}
        for partition, path in list_data_files(self.store, slot.target):
            files.setdefault(partition, []).append(path)
        absolute = {partition: [self.store.url(path) for path in paths] for partition, paths in files.items()}
        self._create(
            Instant(slot.instant, ROLLBACK, State.REQUESTED).key, commit_metadata.rollback_plan(slot, absolute)
        )
        self._create(Instant(slot.instant, ROLLBACK, State.INFLIGHT).key, NOTHING)
        for paths in files.values():
            for path in paths:
                self.store.delete(path)
        for key, _ in list(self.store.list(INDEX)):
            if key.rpartition("_")[2].partition(".")[0] == slot.target:
                self.store.delete(key)
        for state in (State.INFLIGHT, State.REQUESTED):
            self.store.delete(Instant(slot.target, slot.target_action, state).key)
        remove_markers(self.store, slot.target)
        self._create(find_publication_file(slot), commit_metadata.rollback_metadata(slot, absolute))

    # ---- clean: slot, all earlier slots, leases, deletions, completed
    def _outdated_files(self, earliest: Slot) -> list[str]:
        # No transaction needs these key sets and checkpoints, and no snapshot from the slot `earliest` on.
        old = instant_of_ms(max(0, earliest.completed_at - SLOW_WRITE_MS))
        keys = [
            key for key, _ in self.store.list(KEYS) if key[len(KEYS) :].partition("-")[0] < min(old, earliest.instant)
        ]
        saved = {checkpoint_key(seq) for seq in self.history.known_head().savepoints.values()}
        checkpoints = [key for key, _ in self.store.list(CHECKPOINTS) if key <= checkpoint_key(earliest.seq)]
        return keys + [key for key in checkpoints[:-1] if key not in saved]

    def _leased_files(self, slot: Slot) -> set[str]:
        # The leases were taken after the clean operation was committed. Orphan removal deletes the files when the
        # leases have ended.
        leased_slots = {seq for seq in leases.list_protected_commits(self.store) if seq < slot.min_readable}
        if not leased_slots:
            return set()
        return {
            entry.path
            for entry in self.history.state(slot.seq - 1).superseded
            if any(map(entry.is_needed_at, leased_slots))
        }

    def _publish_clean(self, slot: Slot, config: TableConfig) -> None:
        earliest = self.history.slot(slot.min_readable)
        self._create(
            Instant(slot.instant, CLEAN, State.REQUESTED).key,
            commit_metadata.encode_clean_plan(slot, earliest, self.store.url),
        )
        self._create(Instant(slot.instant, CLEAN, State.INFLIGHT).key, NOTHING)
        leased = self._leased_files(slot)
        for path in (*(path for path, _ in slot.victims), *slot.swept, *self._outdated_files(earliest)):
            if path not in leased:
                self.store.delete(path)
        self._update_metadata_table(slot, config)
        self._create(find_publication_file(slot), commit_metadata.clean_metadata(slot, earliest))

    # ---- Hudi's metadata table: first its properties, then its list of files, then the instant that makes the list
    # valid
    def _update_metadata_table(self, slot: Slot, config: TableConfig) -> None:
        # Only the partition `files` stays enabled. The other partitions would lack the new files, and Hudi ignores
        # files that they do not list. After a change of the properties, the slot is checked again. If another process
        # has published the slot by then, possibly without the metadata table, the metadata table is disabled. It is
        # inspected after the properties are read, because a purge first disables it in the properties and then deletes
        # it.
        if not config.metadata_partitions or not metadata_table.list_file_changes(slot):
            return
        values = hoodie_properties.read_properties(self.store)
        if not values.get(METADATA_PARTITIONS) or self.store.exists(find_publication_file(slot)):
            return
        metadata = None
        if metadata_table.has_file_listing(values):
            wrote = self._rewrite_properties(slot, metadata_properties.with_files_only)
            overtaken = wrote and self.store.exists(find_publication_file(slot))
            metadata = None if overtaken else metadata_table.read_metadata_table(self.store, slot.instant)
        if metadata is None:
            self._rewrite_properties(slot, metadata_properties.without_metadata_table)
        else:
            metadata_table.add_commit_files(self.store, slot, metadata)

    def _rewrite_properties(self, slot: Slot, change: Callable[[Mapping[str, str]], dict[str, str]]) -> bool:
        # After a write, the settings are read again, because the write may have overwritten the settings of a later
        # slot.
        settings, wrote = self.history.known_head().settings, False
        while True:
            values = hoodie_properties.read_properties(self.store)
            changed = change(hoodie_properties.with_settings(values, settings))
            if changed == values:
                return wrote
            self.store.put(PROPERTIES, hoodie_properties.render(changed, slot.completed_at))
            settings, wrote = self.history.head().settings, True

    # ---- options: the properties in slots are written to the file, which also contains other properties
    def _publish_options(self, slot: Slot) -> None:
        # A write of the properties also disables Hudi's metadata table. Otherwise, outdated properties could enable an
        # incomplete metadata table.
        values = hoodie_properties.read_properties(self.store)
        if hoodie_properties.with_settings(values, self.history.known_head().settings) != values:
            self._rewrite_properties(slot, metadata_properties.without_metadata_table)
        self._create(find_publication_file(slot), NOTHING)

    # ---- savepoint: Hudi stores it with the instant of the saved commit
    def _publish_savepoint(self, slot: Slot) -> None:
        # If the savepoint was deleted since then, the slot is only marked as published.
        saved = self._commit_instant(slot.position)
        if saved and self.history.known_head().savepoints.get(slot.savepoint) == slot.position:
            completed = Instant(saved, SAVEPOINT, State.COMPLETED, instant_of_ms(slot.completed_at))
            self._create(Instant(saved, SAVEPOINT, State.INFLIGHT).key, NOTHING)
            self._create(completed.key, commit_metadata.encode_savepoint(slot, self.history.state(slot.position)))
            if self.history.head().savepoints.get(slot.savepoint) != slot.position:
                self._withdraw(saved)  # deleted while another process published it
        elif not slot.position:
            self._withdraw(self._commit_instant(self.history.state(slot.seq - 1).savepoints.get(slot.savepoint, 0)))
        self._create(find_publication_file(slot), NOTHING)

    def _commit_instant(self, position: int) -> str:
        try:
            return self.history.slot(position).instant if position else ""
        except SnapshotExpired:
            return ""

    def _withdraw(self, instant: str) -> None:
        for key, _ in list(self.store.list(f"{TIMELINE}{instant}")) if instant else ():
            if ".savepoint" in key:
                self.store.delete(key)


def markers_of(store: Store, instant: str) -> list[str]:
    return [key for key, _ in store.list(f"{MARKERS}{instant}/")]


def remove_marker_and_empty_folders(store: Store, key: str) -> None:
    store.delete(key)
    prune = getattr(store, "prune_folders", None)  # only local disks have empty folders
    if prune:
        prune(key)


def remove_markers(store: Store, instant: str) -> None:
    for key in markers_of(store, instant):
        remove_marker_and_empty_folders(store, key)


def list_data_files(store: Store, instant: str) -> Iterator[tuple[str, str]]:
    """List the data files of a commit.

    Yields partitions and paths. The whole table is listed for files whose names contain the instant, because markers
    may be missing after a crash.
    """
    for key, _ in list(list_own_files(store)):
        if key.startswith(".hoodie/"):
            continue
        partition, _, name = key.rpartition("/")
        parsed = parse_data_file(name)
        if parsed and parsed.instant == instant:
            yield partition, key


def instants(store: Store, after: str = "") -> list[Instant]:
    return [found for name in store.names(TIMELINE, after) if (found := parse_instant(name))]


def was_published(store: Store, instant: str) -> bool:
    return any(True for _ in store.list(f"{TIMELINE}{instant}_")) or any(
        one.time == instant for one in archived_timeline.read(store)
    )
