"""History of a table's commits, cached in memory.

Every read verifies the chain of slots: each slot contains the digest of the previous slot. The cost does not grow with
the number of commits, because a reader loads the newest checkpoint and then only the slots after it. On a local disk,
slots are found by probing names upwards, because a listing would include the whole history. In object storage, one
listing request that starts at a key is used instead.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from hoodoo.errors import CorruptTable, PositionError, RangeUndone, SnapshotExpired, TableNotFound, TableReplaced
from hoodoo.storage.store import Store
from hoodoo.timeline.environment import ResultHolder, Together, in_order
from hoodoo.timeline.instant import Instant, parse_instant
from hoodoo.timeline.layout import CHECKPOINTS, SLOTS, TIMELINE, TURN_REQUESTS, checkpoint_key, slot_key
from hoodoo.timeline.slots import watermark
from hoodoo.timeline.slots.slot import Slot, decode_commit_file, sha
from hoodoo.timeline.views import checkpoint
from hoodoo.timeline.views.pages import PagedPartitions
from hoodoo.timeline.views.view import View, apply

_SLOTS_KEPT = 4096
_FETCHED = 64  # maximum number of slots read at once; for more slots, there is a checkpoint
_VIEWS_KEPT = 8
_LOOKS = 5  # attempts; archiving removes many slots at once, so more attempts are never needed


class History:
    """History of a table's commits, cached in memory."""

    def __init__(self, store: Store, together: Together = in_order) -> None:
        self.store, self.together = store, together
        self._lock = threading.RLock()
        self._head: View | None = None
        self._version = ""  # version of the head's slot in the store, or '' if it is unknown
        self._table = ""
        self.backup_restores = 0  # number of times that the store's history was replaced by a backup
        self.turn_requests: tuple[str, ...] = ()  # keys of the turn requests found by the newest listing
        self.checkpointed = 0  # the slot of the newest checkpoint this process has read or written
        self._slots: OrderedDict[int, tuple[Slot, str]] = OrderedDict()
        self._fetched: dict[int, bytes] = {}  # bytes of slots that will be read next
        self._views: OrderedDict[int, View] = OrderedDict()

    def head(self) -> View:
        """Read the newest state of the table.

        Raises:
            TableNotFound: The table does not exist, or was deleted.
            CorruptTable: A slot is damaged or missing.
        """
        with self._lock:
            for _ in range(_LOOKS):
                try:
                    return self._newest()
                except SnapshotExpired:  # a slot was archived between listing and reading; a checkpoint replaces it
                    continue
            return self._newest()

    def _newest(self) -> View:
        with self._lock:
            view = self._head
            if view is None:
                view = self._start(None)
                self.checkpointed = view.seq
            after = self._slots_after(view.seq)
            if after is None:
                view = self._start(None)
                after = self._slots_after(view.seq)
            if after is None:
                raise SnapshotExpired(
                    "Newest slot was not found, because slots were archived at the same time. Try again."
                )
            with self._prefetch_slots(after):
                for seq, version in after.items():
                    view, self._version = self._apply(view, seq), version
            if not view.seq:
                raise TableNotFound(
                    f"Table {self.store.uri} was deleted or moved after it was opened. Open the table at its new path."
                    if self._table
                    else f"Path {self.store.uri} is not a hoodoo table: its first slot is missing. Check the path.",
                    path=self.store.uri,
                )
            if self._table not in ("", view.table):
                raise replaced(self.store)
            self._head, self._table = view, view.table
            return view

    def add_written_slot(self, slot: Slot, data: bytes, version: str) -> None:
        with self._lock:
            if self._head and (slot.seq, slot.prev) == (self._head.seq + 1, self._head.sha):
                self._keep(slot, sha(data))
                self._head, self._version = self._apply(self._head, slot.seq), version

    def record_checkpoint(self, seq: int) -> None:
        """Record the number of a new checkpoint.

        A large table state is also reloaded to free memory. It then no longer holds the partitions that earlier slots
        changed.
        """
        with self._lock:
            self.checkpointed = seq
            head = self._head
            if head and head.seq == seq and isinstance(head.partitions, PagedPartitions):
                with suppress(CorruptTable, FileNotFoundError):  # the head stays unchanged then
                    reloaded = checkpoint.read_checkpoint(self.store, checkpoint_key(seq))
                    self._head = reloaded if reloaded.sha == head.sha else head

    def has_loaded_state(self) -> bool:
        return self._head is not None

    def known_head(self) -> View:
        return self._head or self.head()

    def view(self, seq: int) -> View:
        """Load the table state at a readable commit.

        Raises:
            SnapshotExpired: The slot does not exist, or cleaning may have deleted files of its snapshot.
        """
        with self._lock:
            head = self.known_head()
            if seq == head.seq:
                return head
            if seq > head.seq or seq < 1:
                raise SnapshotExpired(f"Slot {seq} does not exist. Use a slot from 1 to {head.seq}.", position=seq)
            self.require_readable(seq)
            return self.state(seq)

    def state(self, seq: int) -> View:
        """Load the table state at any commit.

        Some files of the snapshot may be deleted. For table maintenance only. Readers use `view`.
        """
        with self._lock:
            if seq not in self._views:
                cached = max((v for v in self._views.values() if v.seq <= seq), key=lambda v: v.seq, default=None)
                try:
                    view = self._apply_slots_until(cached or self._start(seq), seq)
                except SnapshotExpired:  # slots after the known view were archived in the meantime
                    view = self._apply_slots_until(self._start(seq), seq)
                self._views[seq] = view
                while len(self._views) > _VIEWS_KEPT:
                    self._views.popitem(last=False)
            return self._views[seq]

    def has_commits(self) -> bool:
        return self.store.exists(slot_key(1)) or watermark.deleted_up_to(self.store) > 0

    def instants(self) -> list[Instant]:
        return [found for name in self.store.names(TIMELINE) if (found := parse_instant(name))]

    def oldest_slot(self) -> int:
        return watermark.deleted_up_to(self.store) + 1

    def require_readable(self, seq: int) -> None:
        """Check that a snapshot's files still exist.

        Raises SnapshotExpired if cleaning may have deleted some of them. The error contains the earliest readable slot
        and the savepoints.
        """
        head = self.known_head()
        self.require_not_rolled_back(seq)
        if not head.readable(seq):
            raise SnapshotExpired(
                f"Snapshot at slot {seq} was cleaned. Use slot {head.min_readable} "
                f"(instant {self.slot(head.min_readable).instant}) or later{_and_savepoints(head)}.",
                position=seq,
                earliest=head.min_readable,
            )

    def require_not_rolled_back(self, seq: int) -> None:
        for first, last in self.known_head().undone:
            if first <= seq <= last:
                raise RangeUndone(
                    (
                        f"Slot {seq} was rolled back by another engine, like all slots from {first} to {last}. Use "
                        f"slot {first - 1}, or slot {last + 1} or later."
                    ),
                    position=seq,
                    earliest=last + 1,
                )

    def slot(self, seq: int) -> Slot:
        return self._read(seq)[0]

    def digest(self, seq: int) -> str:
        head = self.known_head()
        if seq == head.seq:
            return head.sha
        try:
            return self._read(seq)[1] if 0 < seq < head.seq else ""
        except SnapshotExpired:
            return ""

    def slots(self, after: int, up_to: int) -> list[Slot]:
        return [self.slot(seq) for seq in range(after + 1, up_to + 1)]

    def find_last_completed_by(self, ms: int) -> int:
        """Find the last commit completed by a time.

        Returns the oldest commit if all commits are newer. Completion times grow with slot numbers, so a binary search
        is used.
        """
        low, high = self.oldest_slot(), self.known_head().seq
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.slot(middle).completed_at <= ms else (low, middle - 1)
        return low

    def newest_before(self, ms: int) -> int:
        """Find the newest commit up to a time.

        Unlike `find_last_completed_by`, it never returns a newer slot. Raises PositionError if slots newer than `ms`
        were archived.
        """
        oldest = self.oldest_slot()
        if self.slot(oldest).completed_at <= ms:
            return self.find_last_completed_by(ms)
        if oldest > 1 and self.state(oldest - 1).completed_at > ms:
            raise PositionError(
                f"Slots of the requested time were archived. Use slot {oldest} or later.", oldest=oldest
            )
        return oldest - 1

    # ---- the store
    def _start(self, up_to: int | None) -> View:
        newest = ResultHolder(lambda: next(checkpoint.newest_first(self.store, up_to), None))
        watermark_read = ResultHolder(lambda: watermark.deleted_up_to(self.store))
        self.together([newest, watermark_read])
        latest, mark = newest.result, watermark_read.result
        while mark and (latest is None or latest.seq < mark) and (up_to is None or mark <= up_to):
            try:
                return checkpoint.read_checkpoint(self.store, watermark.archive_checkpoint_path(mark))
            except FileNotFoundError:  # the watermark was raised in the meantime
                mark = watermark.deleted_up_to(self.store)
            except CorruptTable:
                break
        if up_to is not None and up_to < mark and latest is None:
            raise SnapshotExpired(
                f"Slot {up_to} was archived. Use slot {mark + 1} or later.", position=up_to, earliest=mark + 1
            )
        if latest is None and mark:
            raise CorruptTable(
                f"Checkpoints of the archived slots are missing or damaged. Restore {CHECKPOINTS} from a backup.",
                file=CHECKPOINTS,
            )
        return latest or View()

    def _apply_slots_until(self, view: View, seq: int) -> View:
        with self._prefetch_slots(range(view.seq + 1, seq + 1)):
            for number in range(view.seq + 1, seq + 1):
                view = self._apply(view, number)
        return view

    @contextmanager
    def _prefetch_slots(self, seqs: Iterable[int]) -> Iterator[None]:
        # The body then waits for one request instead of many.
        missing = [seq for seq in seqs if seq not in self._slots][:_FETCHED]
        try:
            if len(missing) > 1:
                self.together([partial(self._fetch_one, seq) for seq in missing])
            yield
        finally:
            self._fetched.clear()

    def _fetch_one(self, seq: int) -> None:
        with suppress(FileNotFoundError):  # the reader of the slot handles this
            self._fetched[seq] = self.store.get(slot_key(seq))

    def _slots_after(self, seq: int) -> dict[int, str] | None:
        # The values are the versions of the files in the store. Returns None if a checkpoint must be loaded, because
        # slots after `seq` were archived, or the table was restored from a backup.
        if not self.store.lists_by_prefix:
            after, last = dict[int, str](), seq
            # read the version before the bytes, so that the next call notices a replaced slot
            while (version := self.store.version(slot_key(last + 1))) and self._exists(last + 1):
                last += 1
                after[last] = version
            # Archiving deletes the oldest slot first. If a slot still exists after the next one was not found, it is
            # the newest.
            own_version = self.store.version(slot_key(seq)) if seq else ""
            if not self._is_head_unchanged(seq, own_version):
                return None
            last_version = self.store.version(slot_key(last)) if after else own_version
            return after if last_version or watermark.deleted_up_to(self.store) <= last else None
        # includes the head itself, so that one listing shows whether it still exists
        listed = dict(self.store.versions(SLOTS, slot_key(seq)[:-1]))
        self.turn_requests = tuple(key for key in listed if key.startswith(TURN_REQUESTS))
        versions = {
            int(key[len(SLOTS) :]): version for key, version in listed.items() if not key.startswith(TURN_REQUESTS)
        }
        if not self._is_head_unchanged(seq, versions.pop(seq, "")):
            return None
        versions = {number: version for number, version in versions.items() if number > seq}
        for expected, number in enumerate(versions, seq + 1):
            if expected != number:
                if expected <= watermark.deleted_up_to(self.store):
                    return None
                raise CorruptTable(
                    f"Slot file {slot_key(expected)} is missing, but slot {number} exists. Restore the file from a "
                    "backup, because slots after a gap cannot be read.",
                    file=slot_key(expected),
                )
        return versions

    def _is_head_unchanged(self, seq: int, version: str) -> bool:
        # Otherwise, the table was restored from a backup, or the slots from the head on were archived, and the caches
        # are cleared. `seq` is the slot that the caller has read up to, and `version` is its version, or '' if it was
        # not found.
        if self._head is None or seq != self._head.seq:
            return True  # the view of a checkpoint, whose slot may be archived
        if version and version == self._version:
            return True
        if version and self._holds(self._head):
            self._version = version
            return True
        if (mark := watermark.deleted_up_to(self.store)) == seq and not version:
            return True  # it was archived, with all earlier slots
        self.backup_restores += seq > mark
        self._head, self._version = None, ""
        self._slots.clear()
        self._views.clear()
        return False

    def _holds(self, head: View) -> bool:
        try:
            return sha(self.store.get(slot_key(head.seq))) == head.sha
        except FileNotFoundError:
            return False

    def _exists(self, seq: int) -> bool:
        try:
            self._read(seq)
        except CorruptTable as problem:
            if problem.details.get("absent"):
                return False
            raise
        return True

    def _read(self, seq: int) -> tuple[Slot, str]:
        with self._lock:
            if seq in self._slots:
                return self._slots[seq]
            key = slot_key(seq)
            try:
                data = self._fetched.pop(seq, None) or self.store.get(key)
            except FileNotFoundError:
                if seq <= watermark.deleted_up_to(self.store):
                    raise SnapshotExpired(
                        f"Slot {seq} was archived. Use slot {self.oldest_slot()} or later.",
                        position=seq,
                        earliest=self.oldest_slot(),
                    ) from None
                raise CorruptTable(
                    f"Slot file {key} is missing. Restore it from a backup, because slots after a gap cannot be read.",
                    file=key,
                    absent=True,
                ) from None
            slot = decode_commit_file(data, key)
            if slot.seq != seq:
                raise CorruptTable(
                    f"Slot file {key} contains slot {slot.seq} instead. Restore the file from a backup.", file=key
                )
            return self._keep(slot, sha(data))

    def _keep(self, slot: Slot, digest: str) -> tuple[Slot, str]:
        self._slots[slot.seq] = slot, digest
        while len(self._slots) > _SLOTS_KEPT:
            self._slots.popitem(last=False)
        return slot, digest

    def _apply(self, view: View, seq: int) -> View:
        slot, own_sha = self._read(seq)
        if self._table not in ("", slot.table):
            self._slots.pop(seq, None)
            raise replaced(self.store)
        if slot.prev != view.sha or (view.table and slot.table != view.table):
            self._slots.pop(seq, None)  # read the slot again after a repair
            raise CorruptTable(
                f"Slot file {slot_key(seq)} does not follow slot {view.seq}. A slot was replaced, or a process "
                "continued to write after the table was restored from a backup. Restore the whole folder from one "
                f"backup. Or, to continue from slot {view.seq}, move {slot_key(seq)} and later slots away and run "
                "verify.",
                file=slot_key(seq),
                slot=seq,
            )
        return apply(view, slot, own_sha)


def replaced(store: Store) -> TableReplaced:
    return TableReplaced(
        (f"Table {store.uri} was deleted and recreated after it was opened. Nothing was written. Open it again."),
        path=store.uri,
    )


def _and_savepoints(head: View) -> str:
    return "".join(f", or savepoint {name!r} at slot {seq}" for name, seq in sorted(head.savepoints.items()))
