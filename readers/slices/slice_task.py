"""Task that reads one file slice.

A file slice without logs is read as plain Parquet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.keys import DEFAULT_PARTITION
from hoodoo.format.names import COMMIT_TIME, RECORD_KEY
from hoodoo.format.parquet import statistics
from hoodoo.readers.predicate import tree as predicates
from hoodoo.readers.predicate.filter import Filter, typed_column_ranges
from hoodoo.readers.slices import slices
from hoodoo.readers.slices.by_row import read_logged_rows
from hoodoo.readers.task import Task
from hoodoo.storage.store import Store
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.slot import DataFile
from hoodoo.timeline.views.view import FileGroup


@dataclass(frozen=True)
class CommitRange:
    """Range of commits to read.

    `instants` are the commit times of the rows that the range wrote. None means all rows.
    """

    since: int
    instants: frozenset[str] | None
    travels_once: ClassVar[bool] = True  # the driver sends it to its tasks once (engine/task_pickling)


@dataclass(frozen=True)
class SliceTask(Task):
    store: Store
    config: TableConfig
    group: FileGroup
    columns: tuple[str, ...]
    where: Filter | None
    changed: CommitRange | None
    verified: bool = False

    def __call__(self) -> pa.Table:
        if self._can_filter_early:
            return self._read_matching_rows()[0]
        needed = self._needed_columns()
        if self.changed is not None and self.changed.instants is not None:
            return self._filter_rows(
                self._read_changed_rows(needed, pa.array(sorted(self.changed.instants), pa.string()))
            )
        group = self._drop_irrelevant_logs()
        rows = slices.read_file_slice(
            self.store, self.config, group, self._schema(needed), self.verified, may_match=self._row_group_filter(group)
        )
        return self._filter_rows(rows)

    def located(self) -> tuple[pa.Table, np.ndarray | None]:
        """Read the rows with their positions.

        The positions are those in the base file. None if they are unknown.
        """
        if self._can_filter_early:
            return self._read_matching_rows()
        rows = self()
        plain = self.where is None and not self.group.logs and self.changed is None
        return rows, np.arange(len(rows)) if plain else None

    @property
    def _can_filter_early(self) -> bool:
        return bool(self.where and self.group.base and not (self.group.logs or self.changed or self.verified))

    def _read_matching_rows(self) -> tuple[pa.Table, np.ndarray]:
        assert self.where is not None and self.group.base is not None
        rows, at = slices.read_matching_rows(
            self.store,
            self.config,
            self.group.base.file,
            self._schema(self._needed_columns()),
            sorted(self.where.columns),
            self.where.positions,
            self._row_group_filter(self.group),
        )
        return rows.select(list(self.columns)), at

    def _drop_irrelevant_logs(self) -> FileGroup:
        # All versions of a row have the same key and partition values. A log whose keys all fail `where` therefore
        # changes no matching row.
        if self.where is None or self.where.tree is None:
            return self.group
        logs = tuple(
            log
            for log in self.group.logs
            if log.file.external
            or log.file.deletes
            or self._may_have_keys(self._converted_statistics(log.file), log.file.rows)
        )
        return replace(self.group, logs=logs)

    def _converted_statistics(self, file: DataFile) -> statistics.Stats:
        return self.config.resolution(file).convert_statistics(file.stats, file.rows)

    def _may_have_keys(self, stats: statistics.Stats, rows: int) -> bool:
        # Only conditions on key and partition columns count.
        assert self.where is not None and self.where.tree is not None
        fixed = set(self.config.key)
        # the default partition contains both null and '', so a row's value may change between them
        if self.config.folders_contain_partition_values and DEFAULT_PARTITION not in self.group.partition:
            fixed |= set(self.config.partition_by)
        identity = {name: stats[name] for name in sorted(fixed) if name in stats}
        return predicates.may_match(self.where.tree, typed_column_ranges(identity, rows, self.config.schema))

    def stream(self, rows: int) -> Iterator[pa.Table]:
        if self.group.logs or self.group.base is None or self.changed or self.verified:
            yield self()
            return
        for part in slices.read_base_batches(
            self.store,
            self.config,
            self.group.base.file,
            self._schema(self._needed_columns()),
            rows,
            self._row_group_filter(self.group),
        ):
            yield self._filter_rows(part)

    @property
    def plain(self) -> DataFile | None:
        file = self.group.base.file if self.group.base else None
        if file is None or self.group.logs or self.where or self.changed or self.verified:
            return None
        if not file.rows or self.config.virtual_keys and RECORD_KEY in self.columns:
            return None  # the row count is unknown, for example of files from archived commits of table version 6
        sources = self.config.resolution(file).sources
        return None if any(name in sources for name in self.columns) else file

    def _needed_columns(self) -> list[str]:
        return list(dict.fromkeys([*self.columns, *sorted(self.where.columns if self.where else ())]))

    def _filter_rows(self, rows: pa.Table) -> pa.Table:
        return (rows if self.where is None else self.where.matching(rows)).select(list(self.columns))

    def _schema(self, columns: list[str]) -> pa.Schema:
        return slices.schema_of(self.config, columns)

    def _row_group_filter(self, group: FileGroup) -> Callable[[statistics.Stats, int], bool] | None:
        # The result is None if all row groups are read. With logs, a row group is also needed if one of its rows could
        # win over a logged row.
        if self.where is None or self.where.tree is None:
            return None
        if not self._logged_rows_always_win(group):
            return self._may_have_keys
        tree, columns = self.where.tree, self.config.schema
        return lambda stats, rows: predicates.may_match(tree, typed_column_ranges(stats, rows, columns))

    def _logged_rows_always_win(self, group: FileGroup) -> bool:
        if group.logs and any(entry.file.external or entry.file.partial for entry in group.files()):
            return False  # logs of another engine may also contain partial updates, or NaN as ordering values
        if group.base is None or not group.logs:
            return True
        logs = [log.file for log in group.logs if log.file.updates]
        return self.config.merge_policy.changes_always_win(
            [self._ordering_bound(log, 0) for log in logs], [self._ordering_bound(group.base.file, 1)]
        )

    def _ordering_bound(self, file: DataFile, which: int) -> Any:
        return slices.first_ordering_column_range(self.config, file)[which]

    def _comparable(self, bound: Any) -> Any:
        name = self.config.merge_policy.bounded
        if bound is None or name is None:
            return None
        return statistics.make_comparable(bound, self.config.schema.field(name).type)

    def _read_changed_rows(self, needed: list[str], instants: pa.Array) -> pa.Table:
        assert self.changed is not None
        wanted = list(dict.fromkeys([*needed, COMMIT_TIME]))
        if self.group.base is None or self.group.base.seq > self.changed.since:
            rows = slices.read_file_slice(self.store, self.config, self.group, self._schema(wanted))
            return rows.filter(pc.is_in(rows[COMMIT_TIME], value_set=instants))
        return self._read_changed_log_rows(wanted, instants)

    def _read_changed_log_rows(self, wanted: list[str], instants: pa.Array) -> pa.Table:
        # The base file is older than the range, so its rows are not in the result. It is read only if one of its rows
        # could win over a logged row.
        assert self.group.base is not None
        config, base = self.config, self.group.base.file
        if any(log.file.partial for log in self.group.logs) and slices.has_row_positions(self.group):
            return read_logged_rows(
                self.store,
                config,
                self.group,
                self._schema(wanted),
                lambda rows: pc.is_in(rows[COMMIT_TIME], value_set=instants).to_numpy(),
            )
        columns = slices.columns_to_decode(config, wanted, merging=True)
        parts = slices.read_logs(self.store, config, self.group, self._schema(columns))
        if len(parts) != 1 or parts[0].columns is not None or parts[0].unset:
            rows = slices.read_file_slice(self.store, config, self.group, self._schema(wanted))
            return rows.filter(pc.is_in(rows[COMMIT_TIME], value_set=instants))
        changes = parts[0]
        rows = changes.rows.filter(pa.array(~changes.delete))
        rows = rows.filter(pc.is_in(rows[COMMIT_TIME], value_set=instants))
        policy = config.merge_policy
        if not len(rows) or policy.bounded is None:
            return rows
        low = self._comparable(statistics.arrow_value_to_json(pc.min(rows[policy.bounded])))
        if policy.changes_always_win([low], [self._ordering_bound(base, 1)]):
            return rows
        old = slices.read_base(self.store, config, base, self._schema(list(policy.needed_columns)))
        position = pc.index_in(rows[RECORD_KEY], value_set=old[RECORD_KEY].combine_chunks())
        known = rows.filter(position.is_valid())
        wins = policy.mask_of_winning_rows(known, old.take(position.drop_null()))
        return pa.concat_tables([rows.filter(position.is_null()), known.filter(pa.array(wins))])
