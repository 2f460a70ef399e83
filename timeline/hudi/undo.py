"""Undo of commits that another engine rolled back.

By default, Hudi rolls back every pending instant when it starts a write, and deletes the inflight file. An instant is
pending until its completed file exists. Such a commit was never acknowledged, and a new slot undoes it.

A power failure may also remove an inflight file, because it is not synced to disk. All data files still exist then, and
the inflight file is created again.
"""

from __future__ import annotations

from typing import Any

from hoodoo.errors import CorruptTable
from hoodoo.format.names import instant_of_ms
from hoodoo.format.timeline import avro as timeline_avro
from hoodoo.timeline.history import History
from hoodoo.timeline.hudi.commit_metadata import encode_inflight_file
from hoodoo.timeline.hudi.publish import instants, is_rolled_back_externally
from hoodoo.timeline.instant import REPLACE_COMMIT, ROLLBACK, Instant, State
from hoodoo.timeline.layout import slot_key
from hoodoo.timeline.slots.slot import COLUMNS, COMPLETED, STREAMED, UNDO, Slot, encode_commit_file
from hoodoo.timeline.views.view import FileGroup, View


def undo_rolled_back_commits(history: History, first: Slot) -> None:
    """Undo the commits that another engine rolled back.

    `first` is the first of them. If no commit was rolled back, create the inflight file of `first` again. Does nothing
    if another process is faster. Raises CorruptTable if files are missing without a rollback, or if a later commit
    depends on the missing commit.
    """
    rollback = _rollback_of(history, first.instant)
    if rollback is None:
        return _make_inflight_again(history, first)
    head = history.head()
    later = [slot for slot in history.slots(first.seq, head.seq) if slot.commits]
    if standing := [slot for slot in later if not is_rolled_back_externally(history.store, slot)]:
        raise CorruptTable(
            f"Instant {first.instant} was rolled back by another engine after it was committed, but instant "
            f"{standing[0].instant} depends on it. Restore the files of instant {first.instant} from a backup, or "
            "restore an earlier snapshot.",
            instant=first.instant,
        )
    before = history.state(first.seq - 1)
    back, now = _groups(before), _groups(head)
    columns = _restored_columns(head, first.seq - 1)
    changed = sorted(key for key in back.keys() | now.keys() if back.get(key) != now.get(key))
    slot = Slot(
        seq=head.seq + 1,
        prev=head.sha,
        table=head.table,
        instant=min(rollback.time, instant_of_ms(head.completed_at)),
        action=REPLACE_COMMIT,
        outcome=COMPLETED,
        operation=UNDO,
        nonce="",
        base_seq=head.seq,
        # not the time of the rollback, because earlier commits of other engines still have to be adopted
        completed_at=head.completed_at + 1,
        writer="another engine",
        files=tuple(entry.file for key in changed if key in back for entry in back[key].files()),
        replaced=tuple(key for key in changed if key in now),
        position=first.seq - 1,
        versions=dict(before.transactions),
        all_reached=dict(before.reached),
        streamed=tuple(before.streamed) if before.streamed.text else (),
        published=rollback.key,
        columns=columns,
        needs=(*((COLUMNS,) if columns else ()), *((STREAMED,) if before.streamed.text else ())),
    )
    try:
        history.store.write_once(slot_key(slot.seq), encode_commit_file(slot))
    except FileExistsError:
        return


def _restored_columns(head: View, seq: int) -> dict[str, Any]:
    # The largest column id is kept, because ids are never reused.
    now, then = head.schemas.newest, head.schemas.up_to(seq).newest
    if now is None or then is None or now.columns == then.columns:
        return {}
    return then.with_schema_id(now.id + 1, now.last).to_json()


def _groups(view: View) -> dict[tuple[str, str], FileGroup]:
    return {(group.partition, group.file_id): group for group in view.groups()}


def _rollback_of(history: History, instant: str) -> Instant | None:
    for candidate in reversed(instants(history.store)):
        if candidate.action == ROLLBACK and candidate.state is State.COMPLETED:
            metadata = timeline_avro.decode_timeline_file(history.store.get(candidate.key))
            if instant in (metadata.get("commitsRollback") or ()):
                return candidate
    return None


def _make_inflight_again(history: History, slot: Slot) -> None:
    if missing := [path for file in slot.files for path in file.paths if not history.store.exists(path)]:
        raise CorruptTable(
            f"Files of the committed instant {slot.instant} are missing: the inflight file and {missing[0]}. If "
            "another engine is rolling the instant back now, try again. Otherwise, restore the files from a backup.",
            file=missing[0],
        )
    history.store.write_once(
        Instant(slot.instant, slot.action, State.INFLIGHT).key, encode_inflight_file(slot.operation)
    )
