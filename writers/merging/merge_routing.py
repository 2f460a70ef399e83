"""Routes the source of a merge, or a part of it: which rows meet stored rows, and in which file group, and what new
rows the others become. New rows are made here, as the planner has to know how many there are. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from hoodoo.format.rows import take
from hoodoo.index.key_index import KeyIndex, Located
from hoodoo.readers.predicate import checks
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import View
from hoodoo.writers.batches.batch import Batch, prepare
from hoodoo.writers.batches.column_alignment import NULL
from hoodoo.writers.batches.write_options import NewKeys, WriteOptions
from hoodoo.writers.merging.clauses import Clause, Kind, both, first_that_means
from hoodoo.writers.merging.merge_source import MergeSource
from hoodoo.writers.routing.locate import locate_by_key
from hoodoo.writers.routing.route import Chunk
from hoodoo.writers.routing.split import Positions, split
from hoodoo.writers.sources import SomeKeys, groups_of, rows_that_exist, some_of


@dataclass(frozen=True)
class PartialUpdate:
    """What an upsert of some columns logs.

    Attributes:
        sets: The columns that stored rows get from those of the source.
        reads: True if stored rows have to be read for that.
    """

    sets: tuple[str, ...]
    reads: bool


@dataclass(frozen=True)
class MergeRules:
    """What a merge does with rows.

    Attributes:
        config: The table's configuration at the view of the attempt.
        clauses: The clauses in their order.
        new_keys: FAIL refuses keys that the table does not have; else clauses say what becomes of them.
        compares: True if keys are compared before rows are routed. Otherwise a hash counts as its key; where a group
            then lacks the key, its task says so (`KeyedChanges.mistaken`), and nothing is committed.
        partial: What logs get of stored rows that the clauses change; nothing is deleted then. None: whole rows.
    """

    config: TableConfig
    clauses: tuple[Clause, ...]
    new_keys: NewKeys = NewKeys.INSERT
    compares: bool = False
    partial: PartialUpdate | None = None

    def of_kind(self, kind: Kind) -> tuple[Clause, ...]:
        """Return the clauses of one kind, in their order."""
        return tuple(clause for clause in self.clauses if clause.kind is kind)


@dataclass(frozen=True)
class Routed:
    """Where the rows of a source go.

    Attributes:
        met: Rows of the source by the file group of their stored rows.
        inserts: The new rows.
        new: `inserts` by where they go.
        there: Mask: the table has the key of the row of the source.
        reads: Ids of the file groups in which these keys are.
        searched: Ids of the file groups that were searched for keys.
        unknown: Keys that the table does not have, and must have; nothing else is told then.
    """

    met: list[Chunk[Positions]]
    inserts: Batch
    new: list[Chunk[Positions]]
    there: np.ndarray
    reads: frozenset[str]
    searched: frozenset[str]
    unknown: SomeKeys | None = None


def routed(
    store: Store, index: KeyIndex, view: View, rules: MergeRules, source: MergeSource, part_of_more: bool = False
) -> Routed:
    """Find out where the rows of `source` go.

    Args:
        store: The store of the table.
        index: The index of the table.
        view: The view to plan on; of a part of the source, that of its partitions will do.
        rules: What the merge does.
        source: The rows, their keys under the columns of the rules' configuration.
        part_of_more: True if other rows go to the same partitions.

    Raises:
        DataError: A new row does not fit the table.
        ExpressionError: An expression cannot be evaluated on a row.
    """
    keys, config = source.keys, rules.config
    meets = bool(rules.of_kind(Kind.MATCHED) or rules.of_kind(Kind.NOT_MATCHED_BY_SOURCE))
    unread = not meets or (rules.partial is not None and not rules.partial.reads)
    located = locate_by_key(store, config, index, view, keys, compare_all=rules.compares or unread)
    there = rows_that_exist(store, config, keys, located)
    unknown = ~there & ~keys.delete
    if rules.new_keys is NewKeys.FAIL and unknown.any():
        nothing = keys.take(np.zeros(0, np.int64))
        return Routed([], nothing, [], there, frozenset(), frozenset(), some_of(keys, unknown))
    inserts, which = _inserts(source, np.flatnonzero(~there), rules)
    return Routed(
        _met(located, there) if meets else [],
        inserts,
        split(inserts, located.take(which), config, index, part_of_more) if len(inserts) else [],
        there,
        groups_of(located, there),
        located.searched,
    )


def _met(located: Located, there: np.ndarray) -> list[Chunk[Positions]]:
    chunks = []
    for number in np.unique(located.group[there]).tolist():
        group, positions = located.groups[number], np.flatnonzero(there & (located.group == number))
        chunks.append(Chunk(positions, group.partition, len(positions), 0, group.file_id))
    return chunks


def _inserts(source: MergeSource, fresh: Positions, rules: MergeRules) -> tuple[Batch, Positions]:
    """The new rows, and the position in the source of each. fresh: those of source rows without a stored row."""
    clauses, config, keys = rules.of_kind(Kind.NOT_MATCHED), rules.config, source.keys
    seen = both(take(source.rows, fresh), None)
    chosen = first_that_means(clauses, seen)
    found, positions = [], []
    for index, clause in enumerate(clauses):
        mine = np.flatnonzero(chosen == index)
        if not len(mine):
            continue
        assert clause.values is not None
        named = take(keys.rows.select(dict.fromkeys((*config.key, *config.partition_by))), fresh[mine])
        values = clause.values.values(named, seen.take(pa.array(mine)))
        columns = {name: named[name] for name in named.schema.names} | values
        found.append(pa.table({name: columns[name] for name in config.schema.names if name in columns}))
        positions.append(fresh[mine])
    options = WriteOptions(missing=NULL)
    batches = [prepare(rows, config, options, checks.of(config)) for rows in found]
    if not batches:
        return keys.take(fresh[:0]), fresh[:0]
    return _together(batches), np.concatenate(positions)


def _together(batches: Sequence[Batch]) -> Batch:
    """The rows of several batches as one."""
    partitions = list(dict.fromkeys(partition for batch in batches for partition in batch.partitions))
    index = {partition: code for code, partition in enumerate(partitions)}
    codes = [np.array([index[name] for name in batch.partitions], np.int32)[batch.codes] for batch in batches]
    return replace(
        batches[0],
        rows=pa.concat_tables([batch.rows for batch in batches]),
        hashes=np.concatenate([batch.hashes for batch in batches]),
        partitions=partitions,
        codes=np.concatenate(codes),
        delete=np.concatenate([batch.delete for batch in batches]),
    )


__all__ = ["MergeRules", "PartialUpdate", "Routed", "routed"]
