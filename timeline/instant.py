"""Instants of Hudi's timeline."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from hoodoo.timeline.layout import TIMELINE


class State(StrEnum):
    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"


COMMIT, DELTA_COMMIT, REPLACE_COMMIT = "commit", "deltacommit", "replacecommit"
COMPACTION, CLEAN, ROLLBACK, SAVEPOINT, RESTORE = "compaction", "clean", "rollback", "savepoint", "restore"
OPTIONS = "options"  # only in hoodoo: a change of options is not in Hudi's timeline
WRITES = frozenset((COMMIT, DELTA_COMMIT, REPLACE_COMMIT))
_COMPLETED_AS = {COMPACTION: COMMIT, "logcompaction": DELTA_COMMIT, "clustering": REPLACE_COMMIT}
_NAME = re.compile(
    r"^(?P<t>\d{14}|\d{17})(?:_(?P<c>\d{14}|\d{17}))?\.(?:(?P<action>[a-z]+))(?:\.(?P<state>requested|inflight))?$"
)


class Instant(NamedTuple):
    """Instant of Hudi's timeline: one action and its state.

    `time` is the requested time and `completed` is the completion time, or '' while the instant is pending. Both times
    have 17 digits in UTC.
    """

    time: str
    action: str
    state: State
    completed: str = ""

    @property
    def key(self) -> str:
        """Path of the timeline file.

        It is relative to the table (docs/format.md 4.2). The file name of a completed instant contains the completed
        action, such as 'commit' for a compaction.
        """
        if self.state is State.COMPLETED:
            return f"{TIMELINE}{self.time}_{self.completed}.{_COMPLETED_AS.get(self.action, self.action)}"
        if self.state is State.INFLIGHT and self.action == COMMIT:
            return f"{TIMELINE}{self.time}.inflight"
        return f"{TIMELINE}{self.time}.{self.action}.{self.state.value}"


def parse_instant(name: str) -> Instant | None:
    match = _NAME.match(name)
    if not match:
        return None
    action, state = match["action"], match["state"]
    if match["c"]:
        return Instant(match["t"], action, State.COMPLETED, match["c"]) if not state else None
    if action == "inflight" and not state:
        return Instant(match["t"], COMMIT, State.INFLIGHT)
    return Instant(match["t"], action, State(state)) if state else None
