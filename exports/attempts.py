"""Tries an export again where others came in between: other exporters, and cleans and archives, which take what it was
about to read. It knows neither of the formats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hoodoo.errors import CorruptTable, ForeignExport, SnapshotExpired, TryAgainError
from hoodoo.exports.request import Request

_ATTEMPTS = 20
Done = TypeVar("Done")


def attempted(request: Request, format: str, folder: str, remedy: str, run: Callable[[int], Done]) -> Done:
    """Return what `run` gives for the slot that is asked for; for the newest one where that slot expired meanwhile.

    Args:
        request: What is asked for.
        format: 'delta' or 'iceberg'.
        folder: Where its metadata lie.
        remedy: What to do where a file of theirs is gone for good.
        run: Brings the format up to a slot.

    Raises ForeignExport where files of the format are gone for good, and TryAgainError where others came first again
    and again.
    """
    until, there = request.until, None
    for _ in range(_ATTEMPTS):
        try:
            return run(until)
        except FileExistsError:  # another exporter, or a foreign writer, took the number: look what it is
            continue
        except FileNotFoundError as problem:  # another exporter deleted it, since what it wrote does not need it
            was, there = there, request.store.names(folder)
            if there == was:
                raise ForeignExport(
                    f"A file of the metadata in {folder} is missing: {problem}. {remedy}", format=format
                ) from None
        except SnapshotExpired:  # slots were archived that it was about to read
            until = request.history.head().seq
        except CorruptTable:
            head = request.history.head()
            if head.min_readable <= until:
                raise
            until = head.seq  # a clean took the file
    raise TryAgainError(
        f"Other exporters or cleaning changed {folder} in each attempt. Export again.",
        format=format,
    )
