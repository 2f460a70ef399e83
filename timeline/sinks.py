"""Spark sinks, identified by application names.

Spark numbers the batches of a query, and a query with a new checkpoint starts at 0 again. A batch with a number that
the sink has already received from another query is therefore a different batch. It is an error instead of being skipped
as a duplicate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hoodoo.errors import OptionError
from hoodoo.redact import printable

_OF_QUERY = re.compile(r"(.+) \(query ([0-9a-f-]{36})\)", re.DOTALL)


def application_of(sink: str, query: str) -> str:
    return f"{sink} (query {query})"


def sink_of(application: str) -> str:
    match = _OF_QUERY.fullmatch(application)
    return match[1] if match else application


def require_same_query(versions: Mapping[str, int], application: str, version: int) -> None:
    """Check that the same Spark query wrote earlier batches.

    Raises OptionError if another query committed a batch of this number or a later one to the sink.
    """
    match = _OF_QUERY.fullmatch(application)
    if not match:
        return
    for other, newest in versions.items():
        if newest >= version and other != application and sink_of(other) == match[1]:
            other_match = _OF_QUERY.fullmatch(other)
            other_query = f"query {other_match[2]}" if other_match else "another stream"
            raise OptionError(
                f"Sink {printable(match[1])} already contains batch {newest} of {other_query}, so batch {version} of "
                f"query {match[2]} is ambiguous. Nothing was written. Use another sink for this query, or start it "
                "with the checkpoint of the other query.",
                option="sink",
                batch=version,
            )
