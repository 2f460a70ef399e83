"""The timeline of a table of version 6 as version 9 has it: every instant under its later name, with the bytes that
belong there, and the archived ones as one entry of the history.

Reads the old timeline and writes nothing. Completion times follow from the old order, so that whoever upgrades again
after a crash makes the same files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hoodoo.errors import UnsupportedTable
from hoodoo.format.names import instant_of_ms, ms_of_instant
from hoodoo.format.timeline import avro as timeline_avro
from hoodoo.format.timeline.avro_schemas import SCHEMAS
from hoodoo.storage.store import Store
from hoodoo.timeline.hudi.archived_timeline import Archived
from hoodoo.timeline.hudi.commit_metadata import clean_metadata, clean_plan
from hoodoo.timeline.hudi.layout_one import ActiveInstant, LayoutOneHistory
from hoodoo.timeline.instant import CLEAN, REPLACE_COMMIT, SAVEPOINT, WRITES, Instant, State, parse_instant
from hoodoo.timeline.layout import HOODIE
from hoodoo.timeline.slots.slot import CLUSTER, COMPLETED, LOG, Slot, strict_json

_CLUSTERING = "clustering"


@dataclass(frozen=True)
class UpgradedTimeline:
    """files: keys of the new timeline and their bytes. archived: what its history tells."""

    files: tuple[tuple[str, bytes], ...]
    archived: tuple[Archived, ...]


def upgraded(history: LayoutOneHistory) -> UpgradedTimeline:
    """The timeline for version 9 of the table of `history`, in which nothing is pending. Raises UnsupportedTable,
    CorruptTable.
    """
    found = [one for one in history.instants() if one.state is State.COMPLETED]
    if old := next((one.time for one in found if len(one.time) != 17), ""):
        raise UnsupportedTable(
            f"The instant {old} has {len(old)} digits, as releases before Hudi 0.10 wrote them. Let Hudi archive it "
            "first.",
            instant=old,
        )
    files, archived, at = list[tuple[str, bytes]](), list[Archived](), 0
    told = {one.time: one for one in history.archived()}
    done = {(one.time, one.action == SAVEPOINT): one for one in found}
    for time, saved in sorted({*done, *((time, False) for time in told)}):
        at = max(ms_of_instant(time), at) + 1
        if time in told and (time, False) not in done:
            record = told[time].record(history.store)
            data = timeline_avro.encode("HoodieCommitMetadata", _shaped(record, SCHEMAS["HoodieCommitMetadata"]()))
            archived.append(Archived(time, instant_of_ms(at), told[time].action, data))
        else:
            files += _files(history.store, done[time, saved], instant_of_ms(at))
    return UpgradedTimeline((*files, *_lost_past(history, at)), tuple(archived))


def _files(store: Store, done: Instant, completed: str) -> Iterator[tuple[str, bytes]]:
    """The files of a completed instant, in all of its states."""
    record: Mapping[str, Any] = {}
    if done.action in WRITES:
        record = ActiveInstant(done.time, completed, done.action, f"{HOODIE}{done.time}.{done.action}").record(store)
    clustered = done.action == REPLACE_COMMIT and record.get("operationType") == CLUSTER
    for name in store.names(HOODIE, done.time):
        if not name.startswith(f"{done.time}."):
            break
        pending = parse_instant(name)
        if pending and (pending.action == SAVEPOINT) == (done.action == SAVEPOINT):
            action = _CLUSTERING if clustered else pending.action
            data = store.get(HOODIE + name)
            yield Instant(done.time, action, pending.state).key, _in_avro(data, name, "HoodieCommitMetadata")
    kind = "HoodieReplaceCommitMetadata" if done.action == REPLACE_COMMIT else "HoodieCommitMetadata"
    name = f"{done.time}.{done.action}"
    yield (
        Instant(done.time, done.action, State.COMPLETED, completed).key,
        _in_avro(store.get(HOODIE + name), name, kind),
    )


def _in_avro(data: bytes, name: str, kind: str) -> bytes:
    """JSON as a record of `kind`; what is Avro already, or empty, as it is."""
    if not data.lstrip().startswith(b"{"):
        return data
    return timeline_avro.encode(kind, _shaped(strict_json(data, HOODIE + name), SCHEMAS[kind]()))


def _shaped(value: Any, schema: Any) -> Any:
    """`value` with the fields that `schema` has; what is null takes the default."""
    if isinstance(schema, list):
        return None if value is None else _shaped(value, next(one for one in schema if one != "null"))
    if not isinstance(schema, dict):
        return value
    if schema["type"] == "record":
        there = {field["name"]: field["type"] for field in schema["fields"]}
        return {name: _shaped(part, there[name]) for name, part in value.items() if name in there and part is not None}
    if schema["type"] == "map":
        return {name: _shaped(part, schema["values"]) for name, part in value.items() if part is not None}
    if schema["type"] == "array":
        return [_shaped(part, schema["items"]) for part in value]
    return value


def _lost_past(history: LayoutOneHistory, at: int) -> Iterator[tuple[str, bytes]]:
    """A clean that deleted nothing and says from where on the table can be read as it was. In version 9 the name of a
    log tells when it was written, which those of version 6 do not; and of archived commits no snapshot is left.
    """
    slots = history.slots(0, history.known_head().seq)
    writes = [slot.instant for slot in slots if slot.action in WRITES or slot.plan_seq]
    logged = any(file.kind == LOG for slot in slots for file in slot.files)
    first = writes[-1] if logged else next((one.before for one in reversed(history.archived())), "")
    if not first:
        return
    clean, earliest = (_slot(instant_of_ms(at + 1), CLEAN), _slot(first, "commit"))
    yield Instant(clean.instant, CLEAN, State.REQUESTED).key, clean_plan(clean, earliest, str)
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


__all__ = ["UpgradedTimeline", "upgraded"]
