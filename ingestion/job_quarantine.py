"""Quarantine of the bad rows of a job.

If a batch has too many bad rows, the first hundred are stored, and the batch is not committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from hoodoo.arguments import ApplicationVersion
from hoodoo.errors import TooManyBadRows
from hoodoo.ingestion.change_rows import ReplayContext, add_replay_information
from hoodoo.ingestion.reading import SourceBatch, SourceReader, add_path_to_hashes
from hoodoo.ingestion.unresolvable_rows import find_unresolvable_rows
from hoodoo.merge.modes import MergeMode
from hoodoo.table.quarantine.quarantine_writer import quarantine_bad_rows, quarantine_messages
from hoodoo.writers.batches.bad_rows import KEPT, without
from hoodoo.writers.batches.write_options import BadRowLimits, WriteOptions, has_too_many_bad_rows


@dataclass(frozen=True)
class JobQuarantine:
    """Quarantine for the bad rows of an ingestion job.

    Attributes:
        reading: The reader of the batch.
        limits: The maximum numbers of bad rows.
        transaction: The transaction of the batch's commit.
        changes: Information that a replay of rows made from change events needs. None: the rows do not come from change
            events.
    """

    reading: SourceReader
    limits: BadRowLimits
    transaction: ApplicationVersion
    changes: ReplayContext | None = None

    def quarantine_first_messages(self, problem: TooManyBadRows) -> None:
        if (found := problem.details.get("found")) is not None:
            quarantine_messages(self.reading.table.handle, found.slice(0, KEPT), self.transaction)

    def read(self, found: SourceBatch) -> None:
        """Quarantine the bad messages and rows of a batch.

        Raises TooManyBadRows above the limits.
        """
        if not found.bad:
            return
        handle, messages, misfits = self.reading.table.handle, found.messages, found.misfits
        too_many = has_too_many_bad_rows(self.limits, found.bad, len(found.rows) + found.bad)
        if len(messages):
            quarantine_messages(handle, messages.slice(0, KEPT) if too_many else messages, self.transaction)
        limits = self.limits if too_many else BadRowLimits(misfits.count, 1.0)
        if misfits.count and not (too_many and len(messages)):
            quarantine_bad_rows(handle, misfits, WriteOptions(limits=limits, transaction=self.transaction))
        if too_many:
            first = _first_of(messages) if len(messages) else f": {misfits.found['detail'][0]}"
            raise self._too_many(found.bad, first, len(found.rows))

    def quarantine_incomplete_rows(
        self, rows: pa.Table, mode: MergeMode, limits: BadRowLimits
    ) -> tuple[pa.Table, Counter[str]]:
        """Quarantine rows with unknown column values.

        Args:
            rows: The rows of a batch, some with unsent values.
            mode: The merge mode, which contains the placeholder for unsent values.
            limits: The maximum numbers of bad rows.

        Returns:
            The other rows, with the column names of the table, and the number of quarantined rows by reason. Rows that
            do not match the table are quarantined too.

        Raises:
            TooManyBadRows: There are more bad rows than `limits` allow.
        """
        table, count = self.reading.table, len(rows)
        config = table.handle.newest_config()
        rows, bad = self.quarantine_misfits(rows, limits)
        positions, _, unresolved = find_unresolvable_rows(rows, table, config, mode, self.changes)
        if len(positions):
            too_many = has_too_many_bad_rows(limits, bad.total() + len(unresolved), count)
            if len(unresolved):
                places = [f"{place}@{self.transaction.version}" for place in unresolved["place"].to_pylist()]
                unresolved = unresolved.set_column(0, unresolved.schema.field("place"), pa.array(places, pa.string()))
                quarantine_messages(
                    table.handle, unresolved.slice(0, KEPT) if too_many else unresolved, self.transaction
                )
            if too_many:
                total = bad.total() + len(unresolved)
                raise self._too_many(total, _first_of(unresolved), count - total)
            rows = without(rows, positions)
        return rows, bad + Counter(unresolved["reason"].to_pylist())

    def quarantine_misfits(
        self, rows: pa.Table, limits: BadRowLimits, origins: Sequence[tuple[str, int]] = ()
    ) -> tuple[pa.Table, Counter[str]]:
        """Quarantine the rows that do not match the table.

        Args:
            rows: The rows of a batch.
            limits: The maximum numbers of bad rows.
            origins: For each run of rows from one file the path and the number of rows; empty if the rows do not come
                from files.

        Returns:
            The matching rows, with the column names of the table, and the number of quarantined rows by reason.

        Raises:
            TooManyBadRows: There are more bad rows than `limits` allow.
        """
        handle = self.reading.table.handle
        rows = handle.newest_config().name_mapping.rows(rows)
        if self.reading.missing == "keep":
            return rows, Counter()
        misfits = add_path_to_hashes(self.reading.misfits(rows, limits.rows), origins)
        if self.changes is not None:
            misfits = add_replay_information(misfits, rows, self.changes)
        reasons = quarantine_bad_rows(handle, misfits, WriteOptions(limits=limits, transaction=self.transaction))
        return without(rows, misfits.found["row"].to_numpy()), reasons

    def _too_many(self, bad: int, first: str, good: int) -> TooManyBadRows:
        return TooManyBadRows(
            f"{bad:,} of {good + bad:,} rows are bad: expected at most {self.limits.rows:,} rows and "
            f"{self.limits.share:.4g} of a batch. The first is{first} Nothing was committed. The first bad rows are "
            "in the quarantine of the table. Correct the source, or raise the limits: "
            "on_bad_rows=hoodoo.BadRowLimits(...) (--max-bad-rows, --max-bad-share).",
            bad=bad,
            rows=good + bad,
        )


def _first_of(messages: pa.Table) -> str:
    return f" at {messages['place'][0]}: {messages['detail'][0]}"


__all__ = ["JobQuarantine"]
