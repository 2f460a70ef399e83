"""Application names of Spark streams, made of the sink and the query that writes to it.

Spark numbers the batches of a query, and a query with a new checkpoint starts at 0 again. A batch of another query with
a number that the sink has already received is therefore a different batch, and must not be skipped as a duplicate. It
is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hoodoo.errors import OptionError
from hoodoo.redact import printable

_OF_QUERY = re.compile(r"(.+) \(query ([0-9a-f-]{36})\)", re.DOTALL)


def application_of(sink: str, query: str) -> str:
    """Return the application name for commits of a Spark query to a sink.

    Args:
        sink: The name of the sink.
        query: The id of the query, 36 characters.
    """
    return f"{sink} (query {query})"


def sink_of(application: str) -> str:
    """Return the sink in an application name. A name that contains no query is returned unchanged."""
    found = _OF_QUERY.fullmatch(application)
    return found[1] if found else application


def require_same_query(versions: Mapping[str, int], application: str, version: int) -> None:
    """Raise OptionError if another Spark query has already written a batch of this number to the same sink.

    Args:
        versions: The newest version of each application.
        application: The application of the commit.
        version: The number of the batch, which is the version of the commit.

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
