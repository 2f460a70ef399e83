"""Sinks of Spark streams, identified together with the query that writes them.

Spark numbers the batches of a query, and a query with a new checkpoint starts at 0 again. So the application name of
such a commit contains the sink and the query. A batch of another query with a number that the sink has already received
is an error. It is a different batch than the committed one, so that it must not be skipped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hoodoo.errors import OptionError
from hoodoo.redact import printable

_OF_QUERY = re.compile(r"(.+) \(query ([0-9a-f-]{36})\)", re.DOTALL)


def application_of(sink: str, query: str) -> str:
    """Return the application of the commits of a sink.

    Args:
        sink: The name of the sink.
        query: The id of the query, 36 characters.
    """
    return f"{sink} (query {query})"


def sink_of(application: str) -> str:
    """Return the sink in an application name, or the application name itself if it does not contain a query."""
    found = _OF_QUERY.fullmatch(application)
    return found[1] if found else application


def require_same_query(versions: Mapping[str, int], application: str, version: int) -> None:
    """Raise OptionError for a batch whose number the sink has already received from another query.

    Args:
        versions: The newest version of each application.
        application: The application of the commit.
        version: Its version.

    Raises:
        OptionError: Another query committed a batch of this number or a later one.
    """
    mine = _OF_QUERY.fullmatch(application)
    if not mine:
        return
    for other, newest in versions.items():
        if newest >= version and other != application and sink_of(other) == mine[1]:
            theirs = _OF_QUERY.fullmatch(other)
            whose = f"query {theirs[2]}" if theirs else "another stream"
            raise OptionError(
                f"Sink {printable(mine[1])} has batch {newest} of {whose}, but this is batch {version} of "
                f"query {mine[2]}, which has its own checkpoint. Nothing was written. Give this query another "
                "sink, or the checkpoint of the other query.",
                option="sink",
                batch=version,
            )
