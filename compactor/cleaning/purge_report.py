"""Counters and final report of a purge."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class PurgeReport:
    """Result of purging rows from a table.

    Attributes:
        keys: Number of keys to purge.
        rows_deleted: Number of live rows that were deleted.
        files_rewritten: Number of data files that were rewritten because they contained a key.
        files_deleted: Number of files that were deleted.
        bytes_deleted: Total size of the deleted files, in bytes.
        files_checked: Number of files whose keys were read in the final check.
        holders: The files that still contain a key. Either the key was written again, or a savepoint, a reader or a
            consumer began to need the file during the purge.
        pending: Writes and files that may still bring a key back: writes that began before the final check and have not
            ended, the files of such writes, and workers that still run a plan that another process completed. Purge
            again when they have ended.
        instants: The instants of the purge's commits, compactions and clean operations.
        min_readable: The oldest slot whose snapshot can still be read.
        bounds_in_slots: True if a slot or a checkpoint may still contain a value of a purged row, as the minimum or
            maximum of a deleted file.
        bounds: The files in `.hoodie/.hoodoo` that contain these values.
        bounds_until: The earliest time (UTC) at which `archive` deletes the files of `bounds`. It keeps them longer if
            a snapshot, a savepoint or a plan still needs them. None if `bounds` is empty.
        quarantined: Number of quarantined rows that were purged.
        quarantine_unread: Number of quarantined rows whose keys cannot be read, because they are truncated or invalid.
        exports: The files in `_delta_log` and `metadata` that may contain a value of a purged row, as the minimum or
            maximum of a deleted file. Export again with `rebuild=True`, then purge again.
    """

    keys: int
    rows_deleted: int = 0
    files_rewritten: int = 0
    files_deleted: int = 0
    bytes_deleted: int = 0
    files_checked: int = 0
    holders: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    instants: tuple[str, ...] = ()
    min_readable: int = 0
    bounds_in_slots: bool = False
    quarantined: int = 0
    quarantine_unread: int = 0
    bounds: tuple[str, ...] = ()
    bounds_until: dt.datetime | None = None
    exports: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        """True if no file contains purged data.

        No data file contains a purged key, and no metadata contains a value of a purged row.
        """
        return self.files_proved and not (self.bounds_in_slots or self.exports)

    @property
    def files_proved(self) -> bool:
        """True if no data file contains purged keys.

        Column statistics may still contain values of purged rows.
        """
        return not (self.holders or self.pending or self.quarantine_unread)

    def with_quarantine(self, report: PurgeReport | None, unread: int) -> PurgeReport:
        """Add the results of purging the quarantine table.

        Args:
            report: The report of the quarantine purge. None if there was nothing to purge.
            unread: Number of quarantined rows whose keys cannot be read.

        Returns:
            A copy of this report that includes both arguments.
        """
        if report is None:
            return replace(self, quarantine_unread=unread)
        return replace(
            self,
            holders=(*self.holders, *report.holders),
            pending=(*self.pending, *report.pending),
            bounds_in_slots=self.bounds_in_slots or report.rows_deleted > 0,  # `detail` and `payload` have bounds too
            quarantined=report.rows_deleted,
            quarantine_unread=unread,
            bounds=(*self.bounds, *report.bounds),
            exports=(*self.exports, *report.exports),
            bounds_until=max((part.bounds_until for part in (self, report) if part.bounds_until), default=None),
        )


@dataclass
class PurgeProgress:
    """Progress of a purge: number of deleted rows, files and bytes.

    Attributes:
        rows: Number of live rows that were deleted.
        rewritten: Number of data files that were rewritten.
        deleted: Number of files that were deleted.
        bytes: Total size of the deleted files.
        instants: Instants of the commits, compactions and clean operations of the purge.
        values: Values of the purged rows, encoded like bounds, by partition and column.
        file_ids: Partitions of the file groups that were searched or lost files, by file id.
    """

    rows: int = 0
    rewritten: int = 0
    deleted: int = 0
    bytes: int = 0
    instants: list[str] = field(default_factory=list)
    values: dict[tuple[str, str], set[Any]] = field(default_factory=dict)
    file_ids: dict[str, str] = field(default_factory=dict)


__all__ = ["PurgeReport", "PurgeProgress"]
