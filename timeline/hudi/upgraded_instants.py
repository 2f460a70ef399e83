"""Instants of an old timeline, upgraded to version 9.

The archived instants become one archived instant. This module only reads the old timeline. Completion times are derived
from the old order, so that an upgrade that is repeated after a crash creates the same files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hoodoo.errors import UnsupportedTable
from hoodoo.format.names import instant_of_ms, ms_of_instant
from hoodoo.format.timeline.commit_json import convert_json_to_avro
from hoodoo.storage.store import Store
from hoodoo.timeline.hudi.archived_timeline import ArchivedEntry
from hoodoo.timeline.hudi.commit_metadata import clean_metadata, encode_clean_plan
from hoodoo.timeline.hudi.timeline_v1 import ActiveInstant, TimelineV1History, commit_in_avro
from hoodoo.timeline.instant import CLEAN, REPLACE_COMMIT, SAVEPOINT, WRITES, Instant, State, parse_instant
from hoodoo.timeline.layout import HOODIE
from hoodoo.timeline.slots.slot import CLUSTER, COMPLETED, LOG, Slot

_CLUSTERING = "clustering"


@dataclass(frozen=True)
class UpgradedTimeline:
    """Upgraded timeline, before it is written.

    Attributes:
        files: Path and content of each timeline file.
        archived: The instants for Hudi's archived timeline.
    """

    files: tuple[tuple[str, bytes], ...]
    archived: tuple[ArchivedEntry, ...]


def upgrade_timeline(history: TimelineV1History) -> UpgradedTimeline:
    """Upgrade an old timeline to version 9.

    The table has version 6 and no pending instants.

    Raises:
        UnsupportedTable: An instant has the format of releases before Hudi 0.10.
        CorruptTable: A timeline file is damaged.
    """
    found = [one for one in history.instants() if one.state is State.COMPLETED]
    if old := next((one.time for one in found if len(one.time) != 17), ""):
        raise UnsupportedTable(
            f"Instant {old} is from a release before Hudi 0.10: expected 17 digits, got {len(old)}. Archive it with "
            "Hudi first.",
            instant=old,
        )
    files, archived, at = list[tuple[str, bytes]](), list[ArchivedEntry](), 0
    told = {one.time: one for one in history.archived()}
    done = {(one.time, one.action == SAVEPOINT): one for one in found}
    for time, saved in sorted({*done, *((time, False) for time in told)}):
        at = max(ms_of_instant(time), at) + 1
        if time in told and (time, False) not in done:
            data = convert_json_to_avro("HoodieCommitMetadata", told[time].record(history.store))
            archived.append(ArchivedEntry(time, instant_of_ms(at), told[time].action, data))
        else:
            files += _upgraded_files(history.store, done[time, saved], instant_of_ms(at))
    return UpgradedTimeline((*files, *_mark_past_unreadable(history, at)), tuple(archived))


def _upgraded_files(store: Store, done: Instant, completed: str) -> Iterator[tuple[str, bytes]]:
    one = ActiveInstant(done.time, completed, done.action, f"{HOODIE}{done.time}.{done.action}")
    record = one.record(store) if done.action in WRITES else {}
    clustered = done.action == REPLACE_COMMIT and record.get("operationType") == CLUSTER
    for name in store.names(HOODIE, done.time):
        if not name.startswith(f"{done.time}."):
            break
        pending = parse_instant(name)
        if pending and (pending.action == SAVEPOINT) == (done.action == SAVEPOINT):
            data = store.get(HOODIE + name)
            if data.startswith(b"{"):  # the plan of a write
                data = commit_in_avro(data, HOODIE + name)
            yield Instant(done.time, _CLUSTERING if clustered else pending.action, pending.state).key, data
    yield Instant(done.time, done.action, State.COMPLETED, completed).key, one.in_avro(store)


def _mark_past_unreadable(history: TimelineV1History, at: int) -> Iterator[tuple[str, bytes]]:
    # Unlike in version 9, the name of a log in version 6 does not contain the instant that wrote it, so earlier
    # snapshots cannot be read. Snapshots of archived commits are not available either. An empty clean operation records
    # this.
    slots = history.slots(0, history.known_head().seq)
    writes = [slot.instant for slot in slots if slot.action in WRITES or slot.plan_seq]
    logged = any(file.kind == LOG for slot in slots for file in slot.files)
    first = writes[-1] if logged else next((one.before for one in reversed(history.archived())), "")
    if not first:
        return
    clean, earliest = (_slot(instant_of_ms(at + 1), CLEAN), _slot(first, "commit"))
    yield Instant(clean.instant, CLEAN, State.REQUESTED).key, encode_clean_plan(clean, earliest, str)
    yield Instant(clean.instant, CLEAN, State.INFLIGHT).key, b""
    done = Instant(clean.instant, CLEAN, State.COMPLETED, instant_of_ms(at + 2))
    yield done.key, clean_metadata(clean, earliest)


def _slot(instant: str, action: str) -> Slot:
    return Slot(
        seq=1,
        prev="",
        table="",
        instant=instant,
        action=action,
        outcome=COMPLETED,
        operation="",
        nonce="",
        base_seq=0,
        completed_at=0,
        writer="",
    )


__all__ = ["UpgradedTimeline", "upgrade_timeline"]
