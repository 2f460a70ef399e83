"""Attempts of an export, with retries.

Other exporters, cleaning and archiving may delete files or slots that the export is about to read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hoodoo.errors import CorruptTable, ForeignExport, SnapshotExpired, TryAgainError
from hoodoo.exports.request import ExportRequest

_ATTEMPTS = 20
Done = TypeVar("Done")


def export_with_retries(
    request: ExportRequest, format: str, folder: str, remedy: str, run: Callable[[int], Done]
) -> Done:
    """Export a table, with retries after concurrent changes.

    Concurrent changes may interrupt an attempt. If the requested slot expires during the export, the next attempt
    exports the newest slot.

    Args:
        request: The export request.
        format: 'delta' or 'iceberg'.
        folder: The folder of the format's metadata, such as '_delta_log/'.
        remedy: Advice for the error if a metadata file is permanently missing.
        run: Function that exports the table up to a given slot.

    Returns:
        The result of `run`.

    Raises:
        ForeignExport: Files of the format are permanently missing.
        TryAgainError: Concurrent changes interrupted all 20 attempts.
    """
    until, names = request.until, None
    for _ in range(_ATTEMPTS):
        try:
            return run(until)
        except FileExistsError:  # another exporter or an external writer used the number
            continue
        except FileNotFoundError as problem:  # another exporter deleted the file, which its metadata does not need
            previous_names, names = names, request.store.names(folder)
            if names == previous_names:
                raise ForeignExport(
                    f"A metadata file in {folder} is missing: {problem}. {remedy}", format=format
                ) from None
        except SnapshotExpired:  # slots that the export needs were archived
            until = request.history.head().seq
        except CorruptTable:
            head = request.history.head()
            if head.min_readable <= until:
                raise
            until = head.seq  # cleaning deleted the file
    raise TryAgainError(
        f"Other exporters or cleaning changed {folder} during each of the {_ATTEMPTS} attempts. Export again.",
        format=format,
    )
