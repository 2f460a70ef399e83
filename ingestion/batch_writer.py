"""Writer for the batches of an ingestion job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from hoodoo.arguments import ApplicationVersion
from hoodoo.errors import CommitConflict, CommitUnknown, DataError
from hoodoo.ingestion.arrival_order import correct_arrival_order
from hoodoo.ingestion.change_rows import ReplayContext
from hoodoo.ingestion.job_quarantine import JobQuarantine
from hoodoo.ingestion.pace import Stopwatch
from hoodoo.ingestion.reading import SourceBatch, SourceReader
from hoodoo.ingestion.replaying import resolve_deleted_rows
from hoodoo.ingestion.report import BatchReport
from hoodoo.ingestion.stored_partitions import add_missing_partitions, assign_partitions
from hoodoo.ingestion.unsent_values import fill_unsent_values, has_unsent_placeholder
from hoodoo.merge.modes import REPLACES, MergeMode
from hoodoo.redact import printable
from hoodoo.table.results import WriteResult
from hoodoo.writers.batches.write_options import BadRowLimits


class BatchWriter:
    """Writer for the batches of an ingestion job."""

    def __init__(self, reading: SourceReader, limits: BadRowLimits) -> None:
        self.reading, self.limits, self.table = reading, limits, reading.table

    def quarantine(self, transaction: ApplicationVersion) -> JobQuarantine:
        return JobQuarantine(self.reading, self.limits, transaction)

    def commit(
        self, found: SourceBatch, transaction: ApplicationVersion, watch: Stopwatch, before_write: Callable[[], None]
    ) -> BatchReport:
        """Transform and commit a batch.

        Args:
            found: The rows and the bad rows of the batch.
            transaction: Job name, commit number and source position that the commit stores.
            watch: Stopwatch of the batch. It also measures the phases `transform` and `write`.
            before_write: Called once, after the rows were transformed and before they are written.

        Returns:
            The report of the batch.

        Raises:
            CommitConflict: Another process of the job committed first.
            DataError: A row does not match the table, and it cannot be quarantined.
        """
        quarantine, table = self.quarantine(transaction), self.table
        if found.unavailable is not None:
            quarantine = replace(quarantine, changes=ReplayContext(found.unavailable, found.unplaced))
        quarantine.read(found)
        bad, left = found.reasons, replace(self.limits, rows=max(0, self.limits.rows - found.bad))
        rows, left_out = self.reading.apply_transform(found.rows)
        rows = correct_arrival_order(rows, table)
        if found.unavailable is not None or found.emptied:
            resolve_deleted_rows(table, rows, found.emptied, transaction)
        mode = MergeMode(unavailable=found.unavailable)
        watch.ended("transform")
        if found.unplaced:
            config = table.handle.newest_config()
            rows, more_bad = quarantine.quarantine_misfits(
                add_missing_partitions(config.name_mapping.rows(rows), config), left
            )
            bad += more_bad
            rows = assign_partitions(fill_unsent_values(rows, table, config, mode), table, config)
        if has_unsent_placeholder(rows, mode):
            rows, more_bad = quarantine.quarantine_incomplete_rows(rows, mode, left)
            bad += more_bad
        else:
            mode = REPLACES
        before_write()
        try:
            result = self._commit_batch(rows, found.emptied, transaction, mode)
        except DataError:
            rows, more_bad = quarantine.quarantine_misfits(rows, left, found.origins)
            if not more_bad:
                raise
            bad += more_bad
            result = self._commit_batch(rows, found.emptied, transaction, mode)
        watch.ended("write")
        if result is not None:
            if result.skipped:
                raise CommitConflict(
                    f"Another process of application {printable(transaction.application)} has committed the same rows."
                )
            watch.waited(result.waited_seconds)
        return BatchReport(
            transaction.application,
            transaction.version,
            transaction.position,
            rows=len(found.rows) + found.bad,
            bad=bad.total(),
            skipped=found.skipped,
            bytes=found.bytes,
            seconds=dict(watch.seconds),
            reasons=dict(bad),
            unknown=tuple(sorted({*found.unknown, *left_out})),
            lost=found.lost,
        )

    def _commit_batch(
        self, rows: pa.Table, emptied: bool, transaction: ApplicationVersion, mode: MergeMode
    ) -> WriteResult | None:
        # Returns None if the commit succeeded but its response was lost. `emptied` is True if the source was truncated,
        # so that all rows of the table are deleted. Raises DataError if a row does not match the table.
        reading = self.reading
        options: dict[str, Any] = {"transaction": transaction}
        if emptied:
            options |= {"whole_table": True}
        else:
            options |= {"evolve": reading.new_columns == "add"}
            options |= {"columns": "given"} if reading.missing == "keep" else {"missing": reading.missing}
            options |= {} if mode.unavailable is None else {"unavailable": mode.unavailable}
            options |= {} if reading.operation == "upsert" else {"existing": "keep"}
            options |= {"bulk": True} if reading.operation == "bulk_insert" else {}
        write = getattr(self.table, "insert_overwrite" if emptied else reading.operation.removeprefix("bulk_"))
        try:
            result: WriteResult = write(rows, **options)
        except CommitUnknown as problem:
            if not problem.resolve():
                raise
            return None
        return result


__all__ = ["BatchWriter"]
