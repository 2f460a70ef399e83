"""Progress of applications, for exactly-once commits.

Each version of an application is committed at most once. Without a source position, a version only has to be larger
than the newest committed version. With a position, versions have no gaps, and a commit must continue from the stored
position. If two processes of an application read the same part of a source, one of them commits, and the other gets an
error. The application defines the format of positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hoodoo.arguments import ApplicationVersion, check_flag, require_position
from hoodoo.errors import CommitConflict, Overtaken
from hoodoo.redact import printable
from hoodoo.timeline.sinks import require_same_query
from hoodoo.timeline.slots.streamed import HUDI_STREAMER, StreamerPosition

NONE = -1
"""Version of an application that has not committed yet."""


@dataclass(frozen=True)
class Application:
    """Progress of an ingestion job in a table.

    Attributes:
        name: The name of the application.
        version: The version of its newest commit, or -1 if it has not committed yet.
        position: The source position in its newest commit, or ''.
    """

    name: str
    version: int
    position: str

    def next(self, position: str, streamer: str = "", overtake: bool = False) -> ApplicationVersion:
        """Create the `transaction` argument for the application's next commit.

        Args:
            position: The source position of the application after the commit: a string of at most 64 KiB.
            streamer: The source position in the format of Apache Hudi's streamer, such as 'shop.orders,0:123,1:456', of
                at most 64 KiB. The table publishes it for that streamer, unless another application already owns the
                published position. '' (default): do not publish the position.
            overtake: True commits even if Apache Hudi's streamer has read further in the meantime. Default False: the
                write fails in that case.

        Returns:
            The argument `transaction` of a write. The write fails with CommitConflict if another process of the
            application has committed in the meantime, and with Overtaken if Apache Hudi's streamer has continued from
            the published position.

        Raises:
            OptionError: `position` is not a string, empty or too long, or another argument is invalid.
        """
        require_position(position)
        if streamer != "":
            require_position(streamer)
        return ApplicationVersion(
            self.name, self.version + 1, position, self.position, streamer, check_flag("overtake", overtake)
        )


def application(name: str, versions: Mapping[str, int], reached: Mapping[str, str]) -> Application:
    return Application(name, versions.get(name, NONE), reached.get(name, ""))


def is_committed(given: ApplicationVersion, versions: Mapping[str, int], reached: Mapping[str, str]) -> bool:
    """Check whether a batch of a job is already committed.

    Args:
        given: The transaction of the commit.
        versions: The newest version of each application.
        reached: The source position of each application.

    Raises:
        CommitConflict: The commit has a position, and another process of the application committed first.
        OptionError: Another query has already written this batch to the sink.
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
        raise _conflict(given, newest, stored, f"expected version {newest + 1}, got {given.version}")
    if given.after is not None and given.after != stored:
        raise _conflict(given, newest, stored, f"the stored position is {printable(stored or 'nothing')}")
    return False


def require_streamer_not_ahead(given: ApplicationVersion, streamed: StreamerPosition) -> None:
    """Check that Apache Hudi's streamer is not ahead of the job.

    Raises Overtaken if it has, because the rows between the two positions would be written twice.

    Args:
        given: The transaction of the commit.
        streamed: The source position that the table stores for Apache Hudi's streamer.
    """
    if not given.position or given.overtake or not streamed.is_ahead_of(given.application):
        return
    name = printable(given.application)
    raise Overtaken(
        f"Apache Hudi's streamer has already read the source of application {name} up to {printable(streamed.text)}, "
        "so rows would be written twice. Nothing was written. Use either the application or the streamer. To continue "
        "with the application, stop the streamer, and commit once with "
        f"table.inspect.application({name}).next(position, overtake=True) and the position to continue from. "
        f"table.inspect.application({HUDI_STREAMER!r}) shows the position of the streamer.",
        application=given.application,
        position=streamed.text,
    )


def _conflict(given: ApplicationVersion, newest: int, stored: str, why: str) -> CommitConflict:
    return CommitConflict(
        f"Another process of application {printable(given.application)} committed first: {why}. Nothing was written. "
        "Discard the rows, read the position with table.inspect.application(...), and continue from there.",
        application=given.application,
        version=given.version,
        newest=newest,
        position=stored,
    )
