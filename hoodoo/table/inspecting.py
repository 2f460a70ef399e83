"""Methods of `table.inspect`, which list metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from hoodoo.arguments import check_number, require_application
from hoodoo.format.table_schema import TableSchema
from hoodoo.hints import suggest_for_methods
from hoodoo.table.handle import TableHandle

if TYPE_CHECKING:
    from hoodoo.format.transforms import Transform
    from hoodoo.readers.cursor import Cursor, PositionLike
    from hoodoo.timeline import timeline_listing
    from hoodoo.timeline.applications import Application
    from hoodoo.timeline.history import History


@dataclass(frozen=True)
class SchemaVersion:
    """Version of a table's schema.

    Attributes:
        id: The schema id, starting at 1.
        cursor: The slot at which the schema became valid. Slot 0 for the schema at creation.
        schema: The columns.
        ids: The id of each column by its dotted path. The id of a column never changes.
        changes: Descriptions of the changes since the previous schema.
    """

    id: int
    cursor: Cursor
    schema: pa.Schema
    ids: Mapping[str, int]
    changes: tuple[str, ...]


@suggest_for_methods
class Inspect:
    """Methods that list the metadata of a table."""

    NAMESPACE: ClassVar[str] = "inspect"

    def __init__(self, handle: TableHandle) -> None:
        self._handle = handle

    def files(self, as_of: PositionLike | None = None) -> pa.Table:
        """List the file groups of a snapshot.

        No data file is opened. A file group is a base file and its log files. The listing is for inspection only. Use
        `scan` to read rows, because base files contain rows that log files replace or delete.

        Args:
            as_of: The position of the snapshot, as in `scan`. None (default): the newest slot.

        Returns:
            One row for each file group: its `partition`, the `rows` and `bytes` of the base file, the number of `logs`,
            their size `log_bytes`, the newest `slot` that wrote to the file group, the path of `base_file` relative to
            the table, and the id `file_group`.

        Raises:
            PositionError: `as_of` is not a position of this table.
            SnapshotExpired: Cleaning deleted the snapshot, or `as_of` is before the first slot of the table.
            RangeUndone: Another engine rolled back the snapshot.
        """
        from hoodoo.readers.file_listing import file_groups

        return file_groups(self._handle.at(as_of).view)

    def duplicates(self, as_of: PositionLike | None = None) -> pa.Table:
        """Find the keys that have more than one row.

        Their rows are usually in different partitions. A key identifies a row only within its partition. If a row
        arrives with a different partition value, the stored row of the key stays, and the key is in two partitions.
        This call reads the key columns of the whole table. Its memory use grows with the number of keys that it finds.

        Args:
            as_of: The position of the snapshot, as in `scan`. None (default): the newest slot.

        Returns:
            One row for each duplicate key, in key order: the key columns, the `count` of its rows, and their
            `partitions` as folder names. If a key has fewer partitions than rows, one partition contains it twice,
            which `verify` reports as damage.

        Raises:
            PositionError: `as_of` is not a position of this table.
            SnapshotExpired: Cleaning deleted the snapshot, or `as_of` is before the first slot of the table.
            RangeUndone: Another engine rolled back the snapshot.
            CorruptTable: A file is damaged.
        """
        from hoodoo.readers.duplicates import find_duplicate_keys

        config, history, view = self._handle.at(as_of)
        return find_duplicate_keys(history, config, view)

    def timeline(self, newest: int | None = None) -> timeline_listing.Timeline:
        """List all instants of the table's timeline.

        Pending instants are listed last.

        Args:
            newest: The maximum number of slots to list, newest first. None (default): all slots except archived ones.

        Returns:
            The instants, with the action of each.

        Raises:
            OptionError: `newest` is not an integer of at least 1.
        """
        from hoodoo.timeline import timeline_listing

        check_number("newest", newest, 1, whole=True)
        return timeline_listing.list_actions(self._handle.look().history, newest)

    def application(self, name: str) -> Application:
        """Return the progress of an application.

        The progress is its newest committed version and source position.

        Args:
            name: The name of the application.

        Returns:
            The newest committed version, and the position stored with it.

        Raises:
            OptionError: `name` is not a string of 1 to 1,000 characters.
        """
        from hoodoo.timeline.applications import application

        require_application(name)
        view = self._handle.look().view
        return application(name, view.transactions, view.reached)

    def applications(self) -> list[Application]:
        """List the progress of all applications.

        Returns:
            The version and position of each application, sorted by name.
        """
        from hoodoo.timeline.applications import application

        view = self._handle.look().view
        return [application(name, view.transactions, view.reached) for name in sorted(view.transactions)]

    def schema_at(self, position: PositionLike) -> pa.Schema:
        """Return the schema of the table at a position.

        Args:
            position: The position, as in `scan`.

        Returns:
            The schema at the position.

        Raises:
            PositionError: `position` is not a position of this table.
            SnapshotExpired: Cleaning deleted the snapshot, or the position is before the first slot of the table.
            RangeUndone: Another engine rolled back the snapshot.
        """
        return self._handle.at(position).config.declared_schema

    def schemas(self) -> list[SchemaVersion]:
        """List all schemas of the table, oldest first.

        The list contains only schemas that readable snapshots or existing files use.

        Returns:
            One entry for each schema.
        """
        config, history, view = self._handle.look()
        if not view.schemas:
            return [_version(config.created, 0, None, history)]
        parsed = [(since, view.schemas.schema(number)) for since, number, _ in view.schemas.entries]
        before = [None, *(schema for _, schema in parsed)]
        return [
            _version(schema, since, former, history)
            for (since, schema), former in zip(parsed, before, strict=False)
            if schema
        ]

    @property
    def transforms(self) -> dict[str, Transform]:
        """Transforms of the generated partition columns."""
        return dict(self._handle.newest_config().transforms)

    @property
    def original_names(self) -> dict[str, str]:
        """The original names of renamed columns, by current name.

        Struct fields appear by path, such as 's.f'.
        """
        return dict(self._handle.newest_config().name_mapping.paths)


def _version(schema: TableSchema, since: int, before: TableSchema | None, history: History) -> SchemaVersion:
    from hoodoo.readers.cursor import cursor_of_commit_number
    from hoodoo.timeline.columns.rewrites import describe, path_of

    ids = {path_of(schema, number): number for number in schema.by_id}
    return SchemaVersion(
        schema.id, cursor_of_commit_number(history, since), schema.arrow, ids, tuple(describe(before, schema))
    )


__all__ = ["Inspect", "SchemaVersion"]
