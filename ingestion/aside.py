"""How a job keeps what is bad, before the commit that moves past it: so it is never in neither place.

Of a batch with too many bad rows the first hundred are kept, and the batch is not committed.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from hoodoo.arguments import ApplicationVersion
from hoodoo.errors import TooManyBadRows
from hoodoo.ingestion.reading import Read, Reading
from hoodoo.ingestion.unsent_values import homeless
from hoodoo.merge.modes import MergeMode
from hoodoo.table.quarantine.setting_aside import set_aside, set_aside_messages
from hoodoo.writers.batches.bad_rows import KEPT, BadRows, none_of, without
from hoodoo.writers.batches.write_options import BadRowLimits, WriteOptions


@dataclass(frozen=True)
class Aside:
    """Where the bad rows of one batch go.

    Attributes:
        reading: How the batch is read.
        limits: How many bad rows it may have.
        transaction: The number of its commit.
    """

    reading: Reading
    limits: BadRowLimits
    transaction: ApplicationVersion

    def messages(self, messages: pa.Table) -> None:
        """Keep the first of what is no row. messages: as `BAD`."""
        set_aside_messages(self.reading.table.handle, messages.slice(0, KEPT), self.transaction)

    def read(self, found: Read) -> None:
        """Keep what is bad of what was read. Raises TooManyBadRows."""
        if not found.bad:
            return
        handle, messages, misfits = self.reading.table.handle, found.messages, found.misfits
        too_many = self.limits.exceeded(found.bad, len(found.rows) + found.bad)
        if len(messages):
            set_aside_messages(handle, messages.slice(0, KEPT) if too_many else messages, self.transaction)
        limits = self.limits if too_many else BadRowLimits(misfits.count, 1.0)
        if misfits.count and not (too_many and len(messages)):
            set_aside(handle, misfits, WriteOptions(limits=limits, transaction=self.transaction))
        if too_many:
            raise self._too_many(messages, misfits, len(found.rows))

    def completable(self, rows: pa.Table, mode: MergeMode, limits: BadRowLimits) -> tuple[pa.Table, int]:
        """Take rows of which some lack values, and keep those whose values neither rows before them nor the table have.

        Args:
            rows: They.
            mode: What stands for a value that was not sent.
            limits: How many of them may be bad.

        Returns:
            The others, by the names of the table, and how many were kept; those that do not fit were, too.

        Raises:
            TooManyBadRows: There are more than `limits`.
        """
        table = self.reading.table
        handle, config = table.handle, table.handle.newest_config()
        rows, bad = config.spellings.rows(rows), none_of(len(rows))
        if self.reading.missing != "keep":
            bad = self.reading.misfits(rows, limits.rows)
            set_aside(handle, bad, WriteOptions(limits=limits, transaction=self.transaction))
            rows = without(rows, bad.found["row"].to_numpy())
        positions, lost = homeless(rows, table, config, mode)
        if len(lost):
            too_many = limits.exceeded(bad.count + len(lost), bad.rows)
            set_aside_messages(handle, lost.slice(0, KEPT) if too_many else lost, self.transaction)
            if too_many:
                raise self._too_many(lost, bad, len(rows) - len(lost))
            rows = without(rows, positions)
        return rows, bad.count + len(lost)

    def _too_many(self, messages: pa.Table, misfits: BadRows, good: int) -> TooManyBadRows:
        bad = len(messages) + misfits.count
        first = (
            f"the first at {messages['place'][0]}: {messages['detail'][0]}"
            if len(messages)
            else f"the first: {misfits.found['detail'][0]}"
        )
        return TooManyBadRows(
            f"{bad:,} of {good + bad:,} rows are bad, {first} At most {self.limits.rows:,} rows and "
            f"{self.limits.share:.4g} of a batch may be. Nothing was committed; the first of them are in the "
            "quarantine of the table. Mend the source, or raise max_bad_rows or max_bad_share.",
            bad=bad,
            rows=good + bad,
        )


__all__ = ["Aside"]
