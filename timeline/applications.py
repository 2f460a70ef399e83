"""Commits that carry an application and a number: which of them is due.

Each number of an application is committed once. Without a position it only has to be larger than the newest one. With a
position the numbers have no gaps, and the commit goes on from the position that it names: so of two processes that read
the same source, each with a range of its own, one commits and the other is told. What a position means, the application
knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hoodoo.arguments import ApplicationVersion, flag, require_position
from hoodoo.errors import CommitConflict, Overtaken
from hoodoo.redact import printable
from hoodoo.timeline.sinks import require_same_query
from hoodoo.timeline.slots.streamed import HUDI_STREAMER, Streamed

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

    def next(self, position: str, streamer: str = "", overtake: bool = False) -> ApplicationVersion:
        """Say what its next commit carries.

        Args:
            position: How far the application has read its source once the commit is made: a text of at most 64 KiB.
            streamer: The same as Apache Hudi's streamer spells it, such as 'shop.orders,0:123,1:456', of at most
                64 KiB. The table tells it to that streamer, unless another application was the first to say so. ''
                (default): it is not said.
            overtake: True goes on although Apache Hudi's streamer has read on since. Default False: the write fails
                then.

        Returns:
            What a write takes as `transaction`. The write fails with CommitConflict where another process of the
            application committed meanwhile, and with Overtaken where Apache Hudi's streamer went on from its place.

        Raises:
            OptionError: `position` is no text, empty or too long, or another argument is not of the kind above.
        """
        require_position(position)
        if streamer != "":
            require_position(streamer)
        return ApplicationVersion(
            self.name, self.version + 1, position, self.position, streamer, flag("overtake", overtake)
        )


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


def require_not_overtaken(given: ApplicationVersion, streamed: Streamed) -> None:
    """Raise Overtaken where Apache Hudi's streamer has read on since the newest commit of the application.

    Args:
        given: What the commit carries.
        streamed: The place in a source that Apache Hudi's streamer finds in the table.
    """
    if not given.position or given.overtake or not streamed.overtakes(given.application):
        return
    name = printable(given.application)
    raise Overtaken(
        f"Apache Hudi's streamer has read on from where application {name} was, up to {printable(streamed.text)}: its "
        "rows would come twice. Nothing was written. Let one of the two read the source. If that is the application, "
        f"stop the streamer, and commit once with table.application({name}).next(position, overtake=True), where "
        f"position is what to go on from; table.application({HUDI_STREAMER!r}) tells how far the streamer came.",
        application=given.application,
        position=streamed.text,
    )


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
