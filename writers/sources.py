"""Sources of rows for a write.

This module contains sources for batches in this process. staged_rows contains the sources for rows that Spark staged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from hoodoo.errors import KeyExists, KeyNotFound
from hoodoo.format.names import RECORD_KEY
from hoodoo.index.key_index import NOWHERE, LookupKeys, LookupResult
from hoodoo.readers.predicate import checks
from hoodoo.readers.predicate.checks import Check
from hoodoo.readers.slices import slices
from hoodoo.redact import printable
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import View
from hoodoo.writers.batches.bad_rows import BadRows, no_bad_rows
from hoodoo.writers.batches.batch import NAMED_KEYS, Batch, require_checks, smallest_keys
from hoodoo.writers.context import Context
from hoodoo.writers.routing.locate import find_files_by_key
from hoodoo.writers.routing.route import assign_rows
from hoodoo.writers.routing.split import BatchRows, sort_rows, split_by_file
from hoodoo.writers.routing.write_plan import WritePlan

if TYPE_CHECKING:
    from hoodoo.writers.batches.evolution import ColumnEvolution


class Source(Protocol):
    """Source of rows for a write."""

    def upsert(self, context: Context, view: View, config: TableConfig) -> WritePlan | None:
        """Plan an upsert of the rows."""

    def insert(
        self, context: Context, view: View, config: TableConfig, existing: str, bulk: bool, sort: Sequence[str] = ()
    ) -> WritePlan | None:
        """Plan an insert of the rows with new keys.

        Args:
            context: The context of the write.
            view: The view to plan on.
            config: The table's configuration at that view.
            existing: 'fail' raises KeyExists for existing keys, 'keep' leaves their rows out.
            bulk: True writes all rows into new file groups.
            sort: Columns that order the new rows.
        """

    def into_new_groups(self, context: Context, view: View, config: TableConfig) -> WritePlan:
        """Plan a write into new files.

        Existing keys are not searched.
        """
        ...

    def partitions_used(self) -> list[str]: ...


@dataclass(frozen=True)
class InMemoryBatch:
    """Batch of rows in memory.

    Attributes:
        batch: The batch.
        checked: The checks that its rows have passed.
        bad: The invalid rows that were removed from the batch.
        evolution: The column changes that the batch may cause.
    """

    batch: Batch
    checked: tuple[Check, ...] = ()
    bad: BadRows = field(default_factory=partial(no_bad_rows, 0))
    evolution: ColumnEvolution | None = None

    def fitted(self, config: TableConfig) -> Batch:
        """Update the batch to the current columns and checks.

        Raises ColumnError if the batch has values for a column that was dropped. Raises CheckFailed if a row fails a
        check that was added after the batch was prepared.
        """
        batch = self.batch.fitted(config)
        if not batch.unconditional:
            require_checks(batch.rows, config, batch.delete, unchecked(config, self.checked))
        return batch

    def upsert(self, context: Context, view: View, config: TableConfig) -> WritePlan | None:
        batch = self.fitted(config)
        located = find_files_by_key(context.store, config, context.index, view, batch)
        return self._plan_located_rows(context, batch, located, view, config)

    def insert(
        self,
        context: Context,
        view: View,
        config: TableConfig,
        existing: str,
        bulk: bool,
        sort: Sequence[str] = (),
    ) -> WritePlan | None:
        batch = self.fitted(config)
        located = find_files_by_key(context.store, config, context.index, view, batch, compare_all=True)
        exists = rows_that_exist(context.store, config, batch, located)
        if exists.any():
            if existing == "fail":
                raise key_exists_error([count_and_first_keys(batch, exists)])
            new_positions = np.flatnonzero(~exists)
            proposal = self._plan_located_rows(
                context, batch.take(new_positions), located.take(new_positions), view, config, bulk, sort
            )
            existing_hashes = batch.hashes[exists]
            return replace(
                proposal,
                updated=lambda: np.union1d(proposal.updated(), existing_hashes),
                reads=file_groups_of_keys(located, exists),
            )
        return self._plan_located_rows(context, batch, located, view, config, bulk, sort)

    def _plan_located_rows(
        self,
        context: Context,
        batch: Batch,
        located: LookupResult,
        view: View,
        config: TableConfig,
        bulk: bool = False,
        sort: Sequence[str] = (),
    ) -> WritePlan:
        chunks = split_by_file(batch, located, config, context.index)
        chunks = [sort_rows(batch, chunk, sort) for chunk in chunks]
        token = context.timeline.environment.token
        assignments = assign_rows(chunks, BatchRows(batch), view, config, token, fill=not bulk)
        is_located = located.group != NOWHERE
        return WritePlan(
            assignments,
            # includes deletes, because a concurrently inserted key must not survive a later delete; includes existing
            # keys, because the stored key may be another key with the same hash
            lambda: np.unique(batch.hashes),
            lambda: np.unique(batch.hashes[~batch.delete & is_located]),
            searched=located.searched,
            stale=self.batch.stale,
        )

    def into_new_groups(self, context: Context, view: View, config: TableConfig) -> WritePlan:
        batch = self.fitted(config)
        return self._plan_located_rows(context, batch, LookupResult.all_keys_new(len(batch)), view, config, bulk=True)

    def partitions_used(self) -> list[str]:
        return [self.batch.partitions[code] for code in np.unique(self.batch.codes).tolist()]


_PAIRS = 1 << 24  # maximum number of keys times partitions per lookup


@dataclass(frozen=True)
class SparkPreparedRows:
    """Rows that Spark tasks prepared for a write.

    Attributes:
        source: The rows, in memory or staged.
        bad: The invalid rows that were removed.
        evolution: The column changes that the rows may cause.
    """

    source: Source
    bad: BadRows
    evolution: ColumnEvolution | None = None


@dataclass(frozen=True)
class DeletedKeys(InMemoryBatch):
    """Keys to delete in all partitions."""

    def upsert(self, context: Context, view: View, config: TableConfig) -> WritePlan | None:
        batch = self.fitted(config)
        write_plan = InMemoryBatch(_repeat_per_partition(context, view, batch)).upsert(context, view, config)
        # includes keys that are inserted concurrently
        return write_plan and replace(write_plan, inserted=lambda: np.unique(batch.hashes))


def _repeat_per_partition(context: Context, view: View, batch: Batch) -> Batch:
    partitions, texts = list(view.partitions), batch.rows[RECORD_KEY].combine_chunks()
    rows, codes = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
    partitions_per_lookup = max(1, _PAIRS // max(1, len(batch)))
    for first in range(0, len(partitions), partitions_per_lookup):
        keys = LookupKeys.one_lookup_per_partition(
            texts, batch.hashes, partitions[first : first + partitions_per_lookup]
        )
        matches = np.flatnonzero(context.index.locate(view.partitions, keys).group != NOWHERE)
        rows.append(keys.rows[matches])
        codes.append((keys.codes[matches] + first).astype(np.int32))
    return replace(batch.take(np.concatenate(rows)), partitions=partitions, codes=np.concatenate(codes))


def unchecked(config: TableConfig, passed: Sequence[Check]) -> tuple[Check, ...]:
    return tuple(check for check in checks.load_checks(config) if check not in passed)


def rows_that_exist(store: Store, config: TableConfig, batch: Batch, located: LookupResult) -> np.ndarray:
    exists = located.group != NOWHERE
    for number in np.unique(located.group[located.unsure]).tolist():
        positions = np.flatnonzero((located.group == number) & located.unsure)
        keys = batch.rows[RECORD_KEY].take(pa.array(positions)).combine_chunks()
        exists[positions] = slices.mask_of_live_keys(store, config, located.groups[number], keys)
    return exists


def file_groups_of_keys(located: LookupResult, mask: np.ndarray) -> frozenset[str]:
    return frozenset(located.groups[number].file_id for number in np.unique(located.group[mask]).tolist())


@dataclass(frozen=True)
class KeyCountAndFirst:
    count: int
    first: tuple[str, ...]


def count_and_first_keys(batch: Batch, mask: np.ndarray) -> KeyCountAndFirst:
    keys = batch.rows[RECORD_KEY].filter(pa.array(mask))
    return KeyCountAndFirst(len(keys), tuple(smallest_keys(keys)))


def key_exists_error(parts: Sequence[KeyCountAndFirst]) -> KeyExists:
    count, keys = sum(part.count for part in parts), _smallest_keys(parts)
    return KeyExists(
        (
            f"{count} keys of the insert exist already: {', '.join(map(printable, keys))}. To replace their rows, call "
            "upsert(...). To keep their rows and skip the new ones, call insert(..., existing='keep')."
        ),
        keys=keys,
    )


def key_not_found_error(parts: Sequence[KeyCountAndFirst]) -> KeyNotFound:
    count, keys = sum(part.count for part in parts), _smallest_keys(parts)
    return KeyNotFound(
        f"{count} keys of the update are not in the table: {', '.join(map(printable, keys))}. Remove these rows, or "
        "pass new_keys='insert' to insert them or new_keys='ignore' to skip them.",
        keys=keys,
    )


def _smallest_keys(parts: Sequence[KeyCountAndFirst]) -> list[str]:
    return sorted(key for part in parts for key in part.first)[:NAMED_KEYS]
