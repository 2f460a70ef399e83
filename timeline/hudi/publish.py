"""Publication: making slots visible to Hudi's readers as completed instants, strictly in slot order.

Everything published follows from the slot, so anybody may do it, twice is as good as once, and a crash between a slot
and its publication is healed by whoever comes next. What is published is never taken back (protocol rule 11).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

from hoodoo.errors import SnapshotExpired
from hoodoo.format.names import instant_of_ms, parse_data_file
from hoodoo.storage.store import Store
from hoodoo.timeline.environment import Deferred
from hoodoo.timeline.history import History
from hoodoo.timeline.holds import leases
from hoodoo.timeline.hudi import archived_timeline, commit_metadata, metadata_table
from hoodoo.timeline.instant import CLEAN, COMPACTION, OPTIONS, ROLLBACK, SAVEPOINT, Instant, State, parse_instant
from hoodoo.timeline.layout import CHECKPOINTS, INDEX, KEYS, MARKERS, PROPERTIES, PUBLISHED, TIMELINE, checkpoint_key
from hoodoo.timeline.properties import config as configuration
from hoodoo.timeline.properties import metadata_properties
from hoodoo.timeline.properties.config import METADATA_PARTITIONS, TableConfig
from hoodoo.timeline.properties.nesting import own_keys
from hoodoo.timeline.slots.slot import LOG, PLANNED, ROLLED_BACK, Slot

NOTHING = b""
SLOW_WRITE_MS = 86_400_000
"""A write whose instant is older than this against the head starts again under a new one: what older writes need may be
gone (protocol rule 13).
"""


def final_key(slot: Slot) -> str:
    """Key of the last file that publication of `slot` creates: if it exists, this slot and all
    before it are published.
    """
    if slot.published:
        return slot.published
    if slot.outcome == PLANNED:
        return Instant(slot.instant, COMPACTION, State.REQUESTED).key
    if slot.action in (SAVEPOINT, OPTIONS):
        return f"{PUBLISHED}{slot.seq:020d}"
    return Instant(slot.instant, slot.action, State.COMPLETED, instant_of_ms(slot.completed_at)).key


class TakenBack(Exception):
    """Another engine rolled the slot's instant back before it was published. Never leaves the package."""

    def __init__(self, slot: Slot) -> None:
        super().__init__(slot.instant)
        self.slot = slot


def taken_back(store: Store, slot: Slot) -> bool:
    """Tell whether another engine rolled back `slot`, which is not published.

    A rollback deletes the inflight file; hoodoo never does.
    """
    return (
        slot.commits
        and slot.seq > 1
        and not store.exists(Instant(slot.instant, slot.action, State.INFLIGHT).key)
        and not store.exists(final_key(slot))
    )


class Publisher:
    """Publishes one table's slots; remembers up to where it has seen them published."""

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
        """Publish every slot up to `seq` that is not yet, in order. new: a slot that this process has just taken, so
        that nobody is asked whether it is published; stands: nor whether it was taken back. names: files that were seen
        in Hudi's timeline. Raises TakenBack.
        """
        if self._backup_restores != self.history.backup_restores:  # what was seen published is not what is there now
            self.published, self._backup_restores = 0, self.history.backup_restores
        first = seq - 1 if seq == new else seq
        while first > self.published and not self._is_published(self.history.slot(first), names):
            first -= 1
        for number in range(first + 1, seq + 1):
            self._publish(self.history.slot(number), config, stands and first + 1 == new)
        self.published = max(self.published, seq)

    def owes(self, seq: int, names: Collection[str] = ()) -> bool:
        """Tell whether a slot up to `seq` is still to be published. names: as in publish_through."""
        return seq > self.published and not self._is_published(self.history.slot(seq), names)

    def _is_published(self, slot: Slot, names: Collection[str] = ()) -> bool:
        """Tell whether `slot` is in Hudi's timeline, active or archived."""
        if slot.published or final_key(slot).removeprefix(TIMELINE) in names or self.store.exists(final_key(slot)):
            return True
        return slot.instant <= archived_timeline.newest(self.store) and was_published(self.store, slot.instant)

    def _publish(self, slot: Slot, config: TableConfig, stands: bool = False) -> None:
        if slot.outcome == PLANNED:
            self._create(final_key(slot), commit_metadata.compaction_plan(slot.plan, self._sizes(slot)))
        elif slot.outcome == ROLLED_BACK:
            self._rollback(slot)
        elif slot.action == CLEAN:
            self._clean(slot, config)
        elif slot.action == SAVEPOINT:
            self._savepoint(slot)
        elif slot.action == OPTIONS:
            self._options(slot)
        else:
            if not stands and taken_back(self.store, slot):
                if self._is_published(slot):
                    return  # by a helper, long ago: it was archived since
                raise TakenBack(slot)
            planned = self.history.slot(slot.plan_seq).plan if slot.action == COMPACTION else ()
            before = (
                self.history.state(slot.seq - 1)
                if config.change_log and slot.writes_rows and any(file.kind == LOG for file in slot.files)
                else None
            )
            schema = self._config_at(slot, config).schema_text
            metadata = commit_metadata.commit_metadata(slot, schema, planned, before)
            self._list_files(slot, config)
            markers = Deferred(lambda: markers_of(self.store, slot.instant))
            self.history.together([lambda: self._create(final_key(slot), metadata), markers])
            self.history.together([partial(remove_marker, self.store, key) for key in markers.result])

    def _config_at(self, slot: Slot, config: TableConfig) -> TableConfig:
        """The configuration as of `slot`: a late helper writes the bytes that its owner would have written. A
        compaction's columns are those of its plan: its instant is the plan's, and engines that read a table as of an
        instant go by that.
        """
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
            return  # a helper was faster

    # ---- rollback: slot, requested, inflight, the target's files, its pending instants, completed
    def _rollback(self, slot: Slot) -> None:
        files: dict[str, list[str]] = {}
        for partition, path in data_files_of(self.store, slot.target):
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
        self._create(final_key(slot), commit_metadata.rollback_metadata(slot, absolute))

    # ---- clean: slot, all earlier slots, leases, deletions, completed
    def _outdated(self, earliest: Slot) -> list[str]:
        """Key sets and checkpoints that no transaction or snapshot from `earliest` on can need."""
        old = instant_of_ms(max(0, earliest.completed_at - SLOW_WRITE_MS))
        keys = [
            key for key, _ in self.store.list(KEYS) if key[len(KEYS) :].partition("-")[0] < min(old, earliest.instant)
        ]
        saved = {checkpoint_key(seq) for seq in self.history.known_head().savepoints.values()}
        checkpoints = [key for key, _ in self.store.list(CHECKPOINTS) if key <= checkpoint_key(earliest.seq)]
        return keys + [key for key in checkpoints[:-1] if key not in saved]

    def _leased(self, slot: Slot) -> set[str]:
        """Victims that a reader's lease holds, taken since the clean was decided: a sweep deletes
        them when it is over.
        """
        held = {seq for seq in leases.held(self.store) if seq < slot.min_readable}
        if not held:
            return set()
        return {
            entry.path for entry in self.history.state(slot.seq - 1).superseded if any(map(entry.in_snapshot, held))
        }

    def _clean(self, slot: Slot, config: TableConfig) -> None:
        earliest = self.history.slot(slot.min_readable)
        self._create(
            Instant(slot.instant, CLEAN, State.REQUESTED).key,
            commit_metadata.clean_plan(slot, earliest, self.store.url),
        )
        self._create(Instant(slot.instant, CLEAN, State.INFLIGHT).key, NOTHING)
        leased = self._leased(slot)
        for path in (*(path for path, _ in slot.victims), *slot.swept, *self._outdated(earliest)):
            if path not in leased:
                self.store.delete(path)
        self._list_files(slot, config)
        self._create(final_key(slot), commit_metadata.clean_metadata(slot, earliest))

    # ---- Hudi's metadata table: first its properties, then what it lists, then the instant by which the list counts
    def _list_files(self, slot: Slot, config: TableConfig) -> None:
        """Append the files of `slot` to Hudi's metadata table; where that is not sure to be right, take it out of use.

        Of its partitions only `files` stays in use: the others would say nothing of the files, and Hudi passes over
        what they do not name. Whoever wrote that looks twice. If the slot is published by now, others went on, maybe
        without the metadata table: it goes out of use. And the metadata table is looked at after the properties name
        it, since a purge deletes it after they do not.
        """
        if not config.metadata_partitions or not metadata_table.changes_of(slot):
            return
        values = configuration.read_properties(self.store)
        if not values.get(METADATA_PARTITIONS) or self.store.exists(final_key(slot)):
            return
        known = None
        if metadata_table.lists_files(values):
            wrote = self._rewrite(slot, metadata_properties.with_files_only)
            overtaken = wrote and self.store.exists(final_key(slot))
            known = None if overtaken else metadata_table.look(self.store, slot.instant)
        if known is None:
            self._rewrite(slot, metadata_properties.without_metadata_table)
        else:
            metadata_table.append(self.store, slot, known)

    def _rewrite(self, slot: Slot, change: Callable[[Mapping[str, str]], dict[str, str]]) -> bool:
        """Change the properties, and bring them up to what slots say; whether that wrote the file.

        Whoever wrote it looks again: a later slot's publisher may have written it in between, and been overwritten.
        """
        settings, wrote = self.history.known_head().settings, False
        while True:
            values = configuration.read_properties(self.store)
            wanted = change(configuration.with_settings(values, settings))
            if wanted == values:
                return wrote
            self.store.put(PROPERTIES, configuration.render(wanted, slot.completed_at))
            settings, wrote = self.history.head().settings, True

    # ---- options: what slots say of the properties is written there, beside what others keep in the file
    def _options(self, slot: Slot) -> None:
        """A file that has to be written says nothing of Hudi's metadata table: what was read of it may be outdated by
        the time it is written, and Hudi would take for whole what is not.
        """
        values = configuration.read_properties(self.store)
        if configuration.with_settings(values, self.history.known_head().settings) != values:
            self._rewrite(slot, metadata_properties.without_metadata_table)
        self._create(final_key(slot), NOTHING)

    # ---- savepoint: Hudi keeps it under the instant of the commit it saves
    def _savepoint(self, slot: Slot) -> None:
        """A slow helper may publish a savepoint that was given up meanwhile; then it only marks the slot."""
        saved = self._instant_of(slot.position)
        if saved and self.history.known_head().savepoints.get(slot.savepoint) == slot.position:
            completed = Instant(saved, SAVEPOINT, State.COMPLETED, instant_of_ms(slot.completed_at))
            self._create(Instant(saved, SAVEPOINT, State.INFLIGHT).key, NOTHING)
            self._create(completed.key, commit_metadata.savepoint_metadata(slot, self.history.state(slot.position)))
            if self.history.head().savepoints.get(slot.savepoint) != slot.position:
                self._withdraw(saved)  # given up while a slow helper was at it
        elif not slot.position:
            self._withdraw(self._instant_of(self.history.state(slot.seq - 1).savepoints.get(slot.savepoint, 0)))
        self._create(final_key(slot), NOTHING)

    def _instant_of(self, position: int) -> str:
        """The instant under a savepoint; '' if there is none, or if it was given up and archived since."""
        try:
            return self.history.slot(position).instant if position else ""
        except SnapshotExpired:
            return ""

    def _withdraw(self, instant: str) -> None:
        for key, _ in list(self.store.list(f"{TIMELINE}{instant}")) if instant else ():
            if ".savepoint" in key:
                self.store.delete(key)


def markers_of(store: Store, instant: str) -> list[str]:
    """Keys of the markers that writers of `instant` left for files they were about to write."""
    return [key for key, _ in store.list(f"{MARKERS}{instant}/")]


def remove_marker(store: Store, key: str) -> None:
    """Delete a marker, and the folders that are empty then."""
    store.delete(key)
    prune = getattr(store, "prune_folders", None)  # only disks have folders to leave behind
    if prune:
        prune(key)


def remove_markers(store: Store, instant: str) -> None:
    """Delete all markers of an instant."""
    for key in markers_of(store, instant):
        remove_marker(store, key)


def data_files_of(store: Store, instant: str) -> Iterator[tuple[str, str]]:
    """(partition, path) of every data file whose name carries `instant`, found by listing: markers may be missing after
    a crash.
    """
    for key, _ in list(own_keys(store)):
        if key.startswith(".hoodie/"):
            continue
        partition, _, name = key.rpartition("/")
        parsed = parse_data_file(name)
        if parsed and parsed.instant == instant:
            yield partition, key


def instants(store: Store, after: str = "") -> list[Instant]:
    """Instants in the timeline folder whose file names sort after `after`, in name order."""
    return [found for name in store.names(TIMELINE, after) if (found := parse_instant(name))]


def was_published(store: Store, instant: str) -> bool:
    """Tell whether `instant` is complete in Hudi's timeline, active or archived."""
    return any(True for _ in store.list(f"{TIMELINE}{instant}_")) or any(
        one.time == instant for one in archived_timeline.read(store)
    )
