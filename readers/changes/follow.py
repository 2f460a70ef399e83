"""Following a table: what changed since a position, then what changed since that, as a Python iterator that polls.

Knows how to ask for a range and how to wait; what a range holds is readers/changes/changes.py and readers/scan.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from hoodoo.readers.output import Rows
from hoodoo.timeline.history import History
from hoodoo.timeline.views.view import View

R = TypeVar("R", bound=Rows)


def follow(
    look: Callable[[], tuple[History, View]],
    since: int,
    pull: Callable[[int, int], R],
    most_commits: int | None,
    poll_s: float,
    timeout_s: float | None,
) -> Iterator[R]:
    """pull(since, until) of one range after the other, each ending at a commit that changed rows; waits `poll_s`
    seconds where there is none. `look` gives the table as it is now.

    most_commits: at most so many commits to a range. Ends where nothing came for `timeout_s` seconds (None: never).
    """
    idle_since = time.monotonic()
    while True:
        until = next_stop(*look(), since, most_commits)
        if until > since:
            yield pull(since, until)
            since, idle_since = until, time.monotonic()
        elif timeout_s is not None and time.monotonic() - idle_since >= timeout_s:
            return
        else:
            time.sleep(poll_s)


def next_stop(history: History, head: View, since: int, most_commits: int | None) -> int:
    """The last slot of the next range: the newest that changed rows, or the one with which `most_commits` are reached;
    `since` if none did.
    """
    if not since:
        return head.seq
    stop, commits = since, 0
    for slot in history.slots(since, head.seq):
        if slot.writes_rows and not head.is_undone(slot.seq):
            stop, commits = slot.seq, commits + 1
            if commits == most_commits:
                break
    return stop
