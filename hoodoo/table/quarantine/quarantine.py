"""Public class `Quarantine`, the bad rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.arguments import check_allowed_value, check_flag, convert_names, convert_time_units, is_utf8
from hoodoo.errors import OptionError, TableNotFound
from hoodoo.hints import suggest_for_methods
from hoodoo.readers.predicate.filter import Params, Where
from hoodoo.readers.scan import Scan
from hoodoo.redact import printable
from hoodoo.table.quarantine.payloads import decode_message_row, row_in
from hoodoo.table.quarantine.replay import Replay, Replayed, set_row_state
from hoodoo.table.quarantine.schema import DROPPED, KEY, NEW, ROWS_AT_ONCE, SCHEMA, STATES, store_beside
from hoodoo.table.quarantine.target import T, open_quarantine
from hoodoo.writers.batches.column_alignment import FAIL, NULL


@suggest_for_methods
class Quarantine(Generic[T]):
    """Quarantine of a table, with the bad rows of its writes.

    It is empty until the first bad row. Every call checks the table first.

    Raises:
        TableReplaced: Every call raises it if a different table is at the path.
        TableNotFound: Every call raises it if the table was deleted.
    """

    def __init__(self, target: T) -> None:
        self._target = target

    def __repr__(self) -> str:
        return f"<hoodoo quarantine of {self._target.path}>"

    @property
    def path(self) -> str:
        """The path of the quarantine table.

        Raises:
            OptionError: The table is at the root of a bucket, so its quarantine cannot be next to it.
        """
        return store_beside(self._target.handle.store).uri

    @property
    def table(self) -> T:
        """The table that stores the bad rows.

        Raises:
            TableNotFound: The quarantine has never had a row.
        """
        if table := open_quarantine(self._target):
            return table
        raise TableNotFound(
            f"Table {self._target.path} has no quarantine yet. The first write with on_bad_rows='quarantine' that "
            "finds a bad row creates it.",
            path=self.path,
        )

    def scan(
        self, columns: Sequence[str] | None = None, *, where: Where | None = None, params: Params | None = None
    ) -> Scan:
        """Read the quarantine like `Table.scan`.

        Args:
            columns: The columns to read. None (default): all columns.
            where: A filter condition, as in `Table.scan`. None (default): all rows.
            params: The values of the parameters in `where`, as in `Table.scan`. None (default): no parameters.

        Returns:
            The scan.

        Raises:
            TableNotFound: The quarantine has never had a row.
        """
        return self.table.scan(columns, where=where, params=params)

    def rows(self, state: str | None = None) -> pa.Table:
        """Return the bad rows as an Arrow table.

        Args:
            state: 'new', 'replayed' or 'dropped' to select rows in this state. None (default): all rows.

        Returns:
            The rows.

        Raises:
            OptionError: `state` is not one of the values above.
        """
        if state is not None:
            check_allowed_value("state", state, STATES)
        table = open_quarantine(self._target)
        if table is None:
            return SCHEMA.empty_table()
        found = table.scan(None, where=f"state = '{state}'" if state else None).to_arrow()
        return found.sort_by([("at", "ascending"), ("source", "ascending"), ("position", "ascending")])

    def count(self, state: str | None = NEW) -> int:
        """Count the bad rows in the quarantine.

        Args:
            state: 'new' (default), 'replayed' or 'dropped' to count rows in this state. None: all rows.

        Returns:
            The number of rows.

        Raises:
            OptionError: `state` is not one of the values above.
        """
        if state is not None:
            check_allowed_value("state", state, STATES)
        table = open_quarantine(self._target)
        return table.scan(None, where=f"state = '{state}'" if state else None).count() if table else 0

    def original(self, position: str) -> pa.Table:
        """Return a bad row as it was written.

        Args:
            position: The `position` of the row, as `rows` shows it.

        Returns:
            A table with one row, with the columns and types of the batch. An undecodable message has the single column
            `payload`: a string if the bytes are UTF-8, else binary.

        Raises:
            OptionError: The position does not exist, or its row is truncated.
        """
        table = open_quarantine(self._target)
        found = SCHEMA.empty_table()
        if table and isinstance(position, str) and is_utf8(position):
            found = table.scan(None, where=pc.field("position") == position).to_arrow()
        row = None
        if len(found) and not found["payload_cut"][0].as_py():
            payload = found["payload"][0].as_py() or b""
            row = row_in(payload)
            row = decode_message_row(payload) if row is None else row
        if row is None:
            why = "only its beginning was stored; rows() returns it" if len(found) else "rows() lists all positions"
            raise OptionError(f"Position {printable(position)} has no complete row: {why}.", option="position")
        return row.replace_schema_metadata(None)

    def drop(self, positions: str | Iterable[str]) -> int:
        """Exclude bad rows from later replays.

        Args:
            positions: The `position` of one or several rows, as `rows` shows it. Unknown positions are ignored.

        Returns:
            The number of rows that were not dropped before.

        Raises:
            OptionError: `positions` is neither a string nor a list of strings.
        """
        wanted = {position for position in convert_names("positions", positions) if is_utf8(position)}
        table = open_quarantine(self._target)
        if table is None or not wanted:
            return 0
        keys = table.scan(["source", "position", "state"], where=f"state != '{DROPPED}'").to_arrow()
        mine = keys.filter(pc.is_in(keys["position"], pa.array(sorted(wanted), pa.string())))
        for start in range(0, len(mine), ROWS_AT_ONCE):
            set_row_state(table, table.get(mine.slice(start, ROWS_AT_ONCE).select(list(KEY))), DROPPED)
        return len(mine)

    def replay(
        self,
        *,
        overwrite: bool = False,
        missing: str = FAIL,
        time_unit: str | Mapping[str, str] | None = None,
    ) -> Replayed:
        """Write the bad rows to the table again.

        The rows must satisfy the current columns and checks of the table. This applies to quarantine rows in state
        'new'. The oldest rows are written first. Valid rows are upserted and change to state 'replayed'. Invalid rows
        stay 'new'. Renamed columns are recognized. A row with a value for a dropped column is invalid.

        Args:
            overwrite: Without `order_by`, a quarantine row could replace a newer row of its key. False (default) raises
                OptionError in this case, unless the stored row is equal. True replaces the stored row.
            missing: Action for columns that a row lacks: 'fail' (default) or 'null', as in `Table.upsert`.
            time_unit: The unit of times in change events without a schema: 'ms', 'us' or 'ns', or a mapping from
                columns to units, as in `hoodoo.sources.Kafka`. None (default): the unit of the job.

        Returns:
            The counts of replayed and bad rows.

        Raises:
            OptionError: An argument has an invalid value. Or the table was created without `order_by`, `overwrite` is
                False, and the table contains a different row with the same key. Nothing was written in these cases.
            CommitConflict: Other writers committed first more than `max_retries` times. Earlier rows are already
                replayed.
            CommitUnknown: The store did not confirm in time that a commit succeeded. Replay again.
        """
        check_allowed_value("missing", missing, (FAIL, NULL))
        guarded = not self._target.handle.newest_config().order_by and not check_flag("overwrite", overwrite)
        units = convert_time_units(time_unit)
        table = open_quarantine(self._target)
        return Replay(self._target, table, guarded, missing, units).run() if table else Replayed()
