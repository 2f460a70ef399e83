"""Loop that follows a table and reads new commits.

`readers/changes/changes.py` and `readers/scan.py` read the rows of a range.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from hoodoo.readers.output import Rows
from hoodoo.timeline.history import History
from hoodoo.timeline.views.view import View

R = TypeVar("R", bound=Rows)


def poll_commits(
    look: Callable[[], tuple[History, View]],
    since: int,
    pull: Callable[[int, int], R],
    most_commits: int | None,
    poll_seconds: float,
    timeout_seconds: float | None,
) -> Iterator[R]:
    """Poll a table for commits, and read their rows.

    Args:
        look: Function that returns the history and the newest view of the table.
        since: The slot after which the first range begins.
        pull: Function that reads the range after the first slot, up to and including the second slot.
        most_commits: The maximum number of commits in a range, or None for no limit.
        poll_seconds: Seconds to wait between two polls if there is no new commit.
        timeout_seconds: Seconds without a new commit after which the iterator ends, or None to never end.
    """
    idle_since = time.monotonic()
    while True:
        until = find_next_range_end(*look(), since, most_commits)
        if until > since:
            yield pull(since, until)
            since, idle_since = until, time.monotonic()
        elif timeout_seconds is not None and time.monotonic() - idle_since >= timeout_seconds:
            return
        else:
            time.sleep(poll_seconds)


def find_next_range_end(history: History, head: View, since: int, most_commits: int | None) -> int:
    """Find the end of the next range of commits.

    The range ends at the newest slot that changed rows, or earlier if it already contains `most_commits` commits. If
    `since` is 0, the range ends at the newest slot.
    """
    if not since:
        return head.seq
    stop, commits = since, 0
    for slot in history.slots(since, head.seq):
        if slot.writes_rows and not head.is_rolled_back_by_other_engine(slot.seq):
            stop, commits = slot.seq, commits + 1
            if commits == most_commits:
                break
    return stop
