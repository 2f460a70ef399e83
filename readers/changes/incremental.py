"""Incremental reads of changed rows and deleted keys.

The result can be passed to `upsert` of another table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.format.log.change_log_block import DELETE
from hoodoo.format.names import IS_DELETED, RECORD_KEY
from hoodoo.readers.changes.changes import Changes, ChangesTask
from hoodoo.readers.changes.row_diff import KEY
from hoodoo.readers.output import Rows
from hoodoo.readers.predicate.filter import Filter, Params, Where
from hoodoo.readers.scan import Scan
from hoodoo.readers.task import Task
from hoodoo.timeline.history import History
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import View


@dataclass(frozen=True)
class ChangedRowsTask(Task):
    task: Task
    schema: pa.Schema

    def __call__(self) -> pa.Table:
        rows = self.task()
        flag = pa.array(np.zeros(len(rows), bool))
        return pa.table([flag if name == IS_DELETED else rows[name] for name in self.schema.names], schema=self.schema)


@dataclass(frozen=True)
class DeletedKeysTask(Task):
    """Task that reads the keys of deleted rows.

    Key, partition and ordering columns have the values that they had at the start of the range. All other columns are
    null.
    """

    part: ChangesTask
    schema: pa.Schema
    where: Filter | None

    def __call__(self) -> pa.Table:
        changes = self.part.find_changes_with_keys()
        changes = changes.filter(pc.equal(changes["op"], DELETE))
        images = pa.Table.from_struct_array(changes["before"]).append_column(KEY, changes[KEY])
        if self.where is not None:
            images = self.where.matching(images)
        return pa.table([self._column(field, images) for field in self.schema], schema=self.schema)

    def _column(self, field: pa.Field, images: pa.Table) -> Any:
        config = self.part.config
        if field.name == IS_DELETED:
            return pa.array([True] * len(images), pa.bool_())
        if field.name == RECORD_KEY:
            return images[KEY]
        kept = field.name in (*config.key, *config.partition_by, *config.order_by)
        return images[field.name] if kept else pa.nulls(len(images), field.type)


class IncrementalRows(Rows):
    """Rows of an incremental read, and the deleted keys.

    The rows were inserted or updated in a range of commits. Returned by `Table.incremental` with deletes=True.

    Attributes:
        cursor: The position of the end of the range.
    """

    def __init__(
        self,
        history: History,
        config: TableConfig,
        changed: Scan,
        since: int,
        until: View,
        where: Where | None,
        meta: bool,
        params: Params | None = None,
    ) -> None:
        self._history, self._changed, self._seq, self.cursor = history, changed, until.seq, changed.cursor
        schema = changed.schema
        offered = config.file_schema if meta else config.schema
        self._where = Filter.parse(config.name_mapping.text(where), offered, params=params)
        identity = (*config.key, *config.partition_by, *config.order_by)
        needed = dict.fromkeys([*identity, *sorted(self._where.columns if self._where else ())])
        self._deletes = (
            Changes(
                history,
                config,
                since,
                until,
                [name for name in offered.names if name in needed],
                timed=False,
                meta=meta,
            )
            if since
            else None
        )
        others = [field.with_nullable(True) for field in schema if field.name != IS_DELETED]
        self._schema = pa.schema([*others, pa.field(IS_DELETED, pa.bool_())])

    def __repr__(self) -> str:
        return f"<hoodoo incremental pull up to slot {self._seq}, with deletes>"

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows.

        It has the table's columns and `_hoodie_is_deleted`.
        """
        return self._rename_schema(self._schema)

    def tasks(self) -> list[Task]:
        """Split the read into tasks that can run anywhere.

        Returns:
            The tasks that read changed rows, followed by the tasks that read the keys of deleted rows.
        """
        delete_tasks = self._deletes._create_tasks() if self._deletes else []
        tasks: list[Task] = [
            *(ChangedRowsTask(task, self._schema) for task in self._changed.tasks()),
            *(DeletedKeysTask(part, self._schema, self._where) for part in delete_tasks),
        ]
        return list(map(self._rename_task, tasks))
