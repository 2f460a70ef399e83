"""Routing of merge rows to the stored rows that they match.

Routing creates the new rows, because the planner needs their number. It writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from hoodoo.errors import ColumnError
from hoodoo.format.rows import take_rows
from hoodoo.index.key_index import KeyIndex, LookupResult
from hoodoo.readers.predicate import checks
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import View
from hoodoo.writers.batches.batch import Batch, prepare_batch
from hoodoo.writers.batches.column_alignment import NULL
from hoodoo.writers.batches.write_options import NewKeys, WriteOptions
from hoodoo.writers.merging.clauses import Clause, Kind, both, first_true_clause
from hoodoo.writers.merging.merge_source import MergeSource
from hoodoo.writers.routing.locate import find_files_by_key
from hoodoo.writers.routing.route import RoutedChunk
from hoodoo.writers.routing.split import Positions, split_by_file
from hoodoo.writers.sources import KeyCountAndFirst, count_and_first_keys, file_groups_of_keys, rows_that_exist


@dataclass(frozen=True)
class PartialUpdate:
    """Partial update, which logs only some columns.

    Attributes:
        sets: The columns of stored rows that the source sets.
        reads: True if the stored rows have to be read.
    """

    sets: tuple[str, ...]
    reads: bool


@dataclass(frozen=True)
class MergeRules:
    """Rules that decide the changes of a merge.

    Attributes:
        config: The table's configuration at the view of the attempt.
        clauses: The clauses in order.
        new_keys: FAIL raises an error for keys that the table does not have. Otherwise the clauses apply to them.
        compares: True if keys are compared before rows are routed. If False, rows are routed by key hash only. If a
            file group then lacks a key, its task reports it (`KeyedChanges.mistaken`), and nothing is committed.
        partial: The partial update that logs contain for changed rows, without deletes. None: whole rows are written.
    """

    config: TableConfig
    clauses: tuple[Clause, ...]
    new_keys: NewKeys = NewKeys.INSERT
    compares: bool = False
    partial: PartialUpdate | None = None

    def of_kind(self, kind: Kind) -> tuple[Clause, ...]:
        return tuple(clause for clause in self.clauses if clause.kind is kind)


@dataclass(frozen=True)
class RoutedRows:
    """Source rows of a merge, divided into matched and new rows.

    Attributes:
        met: Chunks of source rows, by the file group of the matching stored rows.
        inserts: The new rows.
        new: Chunks of `inserts`, by destination.
        there: Mask of the source rows whose key is in the table.
        reads: The ids of the file groups that contain these keys.
        searched: The ids of the file groups that were searched for keys.
        unknown: Required keys that the table does not have, or None. If set, `met`, `inserts` and `new` are empty.
    """

    met: list[RoutedChunk[Positions]]
    inserts: Batch
    new: list[RoutedChunk[Positions]]
    there: np.ndarray
    reads: frozenset[str]
    searched: frozenset[str]
    unknown: KeyCountAndFirst | None = None


def match_source_rows(
    store: Store, index: KeyIndex, view: View, rules: MergeRules, source: MergeSource, part_of_more: bool = False
) -> RoutedRows:
    """Match source rows with stored rows.

    Args:
        store: The store of the table.
        index: The index of the table.
        view: The view to plan on, with at least the partitions of the source rows.
        rules: The rules of the merge.
        source: The source rows. Their keys must have the columns of the configuration in `rules`.
        part_of_more: True if other rows of the merge go to the same partitions. Default False.

    Raises:
        DataError: A new row is invalid.
        ExpressionError: An expression cannot be evaluated on a row.
    """
    keys, config = source.keys, rules.config
    meets = bool(rules.of_kind(Kind.MATCHED) or rules.of_kind(Kind.NOT_MATCHED_BY_SOURCE))
    unread = not meets or (rules.partial is not None and not rules.partial.reads)
    located = find_files_by_key(store, config, index, view, keys, compare_all=rules.compares or unread)
    exists = rows_that_exist(store, config, keys, located)
    missing = ~exists & ~keys.delete
    if rules.new_keys is NewKeys.FAIL and missing.any():
        no_rows = keys.take(np.zeros(0, np.int64))
        return RoutedRows([], no_rows, [], exists, frozenset(), frozenset(), count_and_first_keys(keys, missing))
    inserts, positions = _create_new_rows(source, np.flatnonzero(~exists), rules)
    return RoutedRows(
        _matched_chunks(located, exists) if meets else [],
        inserts,
        split_by_file(inserts, located.take(positions), config, index, part_of_more) if len(inserts) else [],
        exists,
        file_groups_of_keys(located, exists),
        located.searched,
    )


def _matched_chunks(located: LookupResult, exists: np.ndarray) -> list[RoutedChunk[Positions]]:
    chunks = []
    for number in np.unique(located.group[exists]).tolist():
        group, positions = located.groups[number], np.flatnonzero(exists & (located.group == number))
        chunks.append(RoutedChunk(positions, group.partition, len(positions), 0, group.file_id))
    return chunks


def _create_new_rows(source: MergeSource, fresh: Positions, rules: MergeRules) -> tuple[Batch, Positions]:
    # `fresh` are the positions of the source rows without a stored row.
    clauses, config, keys = rules.of_kind(Kind.NOT_MATCHED), rules.config, source.keys
    seen = both(take_rows(source.rows, fresh), None)
    chosen = first_true_clause(clauses, seen)
    inserts, positions = [], []
    for index, clause in enumerate(clauses):
        selected = np.flatnonzero(chosen == index)
        if not len(selected):
            continue
        assert clause.values is not None
        key_columns = take_rows(keys.rows.select(dict.fromkeys((*config.key, *config.partition_by))), fresh[selected])
        values = clause.values.values(key_columns, seen.take(pa.array(selected)))
        columns = {name: key_columns[name] for name in key_columns.schema.names} | values
        inserts.append(pa.table({name: columns[name] for name in config.schema.names if name in columns}))
        positions.append(fresh[selected])
    options = WriteOptions(missing=NULL)
    batches = [_prepare_new_rows(rows, source.rows.schema.names, config, options) for rows in inserts]
    if not batches:
        return keys.take(fresh[:0]), fresh[:0]
    return _concat_batches(batches), np.concatenate(positions)


def _prepare_new_rows(
    rows: pa.Table, source_columns: Sequence[str], config: TableConfig, options: WriteOptions
) -> Batch:
    try:
        return prepare_batch(rows, config, options, checks.load_checks(config))
    except ColumnError as problem:
        name = problem.details.get("column")
        if name not in source_columns or name in rows.schema.names:
            raise
        raise ColumnError(
            f"Clause when_not_matched_insert sets no value for column {name!r}, which every new row needs. Add "
            f"{name!r}: 'source.{name}' to the clause.",
            column=name,
        ) from None


def _concat_batches(batches: Sequence[Batch]) -> Batch:
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


__all__ = ["MergeRules", "PartialUpdate", "RoutedRows", "match_source_rows"]
