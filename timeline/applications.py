"""Commits that carry an application and a number: which of them is due.

Each number of an application is committed once. Without a position it only has to be larger than the newest one. With a
position the numbers have no gaps, and the commit goes on from the position that it names: so of two processes that read
the same source, each with a range of its own, one commits and the other is told. What a position means, the application
knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hoodoo.arguments import ApplicationVersion, require_position
from hoodoo.errors import CommitConflict
from hoodoo.redact import printable
from hoodoo.timeline.sinks import require_same_query

NONE = -1
"""The newest number of an application that has committed nothing."""


@dataclass(frozen=True)
class Application:
    """How far an application has come.

    Attributes:
        name: The name of the application.
        version: The number of its newest commit; -1 where it has made none.
        position: How far it has read its source, as its commits say; '' where they do not.
    """

    name: str
    version: int
    position: str

    def next(self, position: str) -> ApplicationVersion:
        """Say what its next commit carries.

        Args:
            position: How far the application has read its source once the commit is made: a text of at most 64 KiB.

        Returns:
            What a write takes as `transaction`. The write fails with CommitConflict where another process of the
            application committed meanwhile.

        Raises:
            OptionError: `position` is no text, empty or too long.
        """
        require_position(position)
        return ApplicationVersion(self.name, self.version + 1, position, self.position)


def application(name: str, versions: Mapping[str, int], reached: Mapping[str, str]) -> Application:
    """Return how far an application has come, of the newest number and the position of each."""
    return Application(name, versions.get(name, NONE), reached.get(name, ""))


def is_committed(given: ApplicationVersion, versions: Mapping[str, int], reached: Mapping[str, str]) -> bool:
    """Tell whether a commit is in the table already, so that nothing is left to do.

    Args:
        given: What the commit carries.
        versions: The newest number of each application.
        reached: How far each application has read its source.

    Raises:
        CommitConflict: The commit carries a position, and another process of the application came first.
        OptionError: The commit is a batch that its sink has from another query.
    """
    newest, stored = versions.get(given.application, NONE), reached.get(given.application, "")
    if not given.position:
        if given.version <= newest:
            return True
        require_same_query(versions, given.application, given.version)
        return False
    if given.version == newest and given.position == stored:
        return True
    if given.version != newest + 1:
        raise _conflict(given, newest, stored, f"its newest number is {newest if newest >= 0 else 'none yet'}")
    if given.after is not None and given.after != stored:
        raise _conflict(given, newest, stored, f"it has read up to {printable(stored or 'nothing')}")
    return False


def _conflict(given: ApplicationVersion, newest: int, stored: str, why: str) -> CommitConflict:
    return CommitConflict(
        f"Another process of application {printable(given.application)} came first: number {given.version} is not the "
        f"next one that goes on from where it is, for {why}. Nothing was written. Look where it is, with "
        "table.application(...), throw away what was read, and go on from there.",
        application=given.application,
        version=given.version,
        newest=newest,
        position=stored,
    )
