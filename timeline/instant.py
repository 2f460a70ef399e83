"""Hudi's instants: an action at a time in a state, and the name of the file that says so."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from hoodoo.timeline.layout import TIMELINE


class State(StrEnum):
    """The state of an instant in Hudi's timeline."""

    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"


COMMIT, DELTA_COMMIT, REPLACE_COMMIT = "commit", "deltacommit", "replacecommit"
COMPACTION, CLEAN, ROLLBACK, SAVEPOINT, RESTORE = "compaction", "clean", "rollback", "savepoint", "restore"
OPTIONS = "options"  # ours alone: a change of the table's options leaves nothing in Hudi's timeline
WRITES = frozenset((COMMIT, DELTA_COMMIT, REPLACE_COMMIT))
_COMPLETED_AS = {COMPACTION: COMMIT, "logcompaction": DELTA_COMMIT, "clustering": REPLACE_COMMIT}
_NAME = re.compile(
    r"^(?P<t>\d{14}|\d{17})(?:_(?P<c>\d{14}|\d{17}))?\.(?:(?P<action>[a-z]+))(?:\.(?P<state>requested|inflight))?$"
)


class Instant(NamedTuple):
    """`time` is the requested time, `completed` the completion time or ''; both 17 digits UTC."""

    time: str
    action: str
    state: State
    completed: str = ""

    @property
    def key(self) -> str:
        """Key of the instant's file, docs/format.md 4.2: a completed file is named after the action it completes as."""
        if self.state is State.COMPLETED:
            return f"{TIMELINE}{self.time}_{self.completed}.{_COMPLETED_AS.get(self.action, self.action)}"
        if self.state is State.INFLIGHT and self.action == COMMIT:
            return f"{TIMELINE}{self.time}.inflight"
        return f"{TIMELINE}{self.time}.{self.action}.{self.state.value}"


def parse_instant(name: str) -> Instant | None:
    """The instant a file name in the timeline folder speaks of; None for strange names, which are
    ignored as Hudi does.
    """
    match = _NAME.match(name)
    if not match:
        return None
    action, state = match["action"], match["state"]
    if match["c"]:
        return Instant(match["t"], action, State.COMPLETED, match["c"]) if not state else None
    if action == "inflight" and not state:
        return Instant(match["t"], COMMIT, State.INFLIGHT)
    return Instant(match["t"], action, State(state)) if state else None
