"""The quarantine as its users see it: look at bad rows, try them again, give them up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic

import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.arguments import flag, is_utf8, names, one_of, time_units
from hoodoo.errors import OptionError, TableNotFound
from hoodoo.hints import explained
from hoodoo.readers.predicate.filter import Where
from hoodoo.readers.scan import Scan
from hoodoo.redact import printable
from hoodoo.table.quarantine.payloads import message_in, row_in
from hoodoo.table.quarantine.replay import Replay, Replayed, mark
from hoodoo.table.quarantine.schema import DROPPED, KEY, NEW, ROWS_AT_ONCE, SCHEMA, STATES, store_beside
from hoodoo.table.quarantine.target import T, opened
from hoodoo.writers.batches.column_alignment import FAIL, NULL


@explained
class Quarantine(Generic[T]):
    """The rows that writes of a table set aside, as `Table.quarantine()` gives them. Empty until the first bad row.

    Every call looks at the table first.

    Raises:
        TableReplaced: Of every call: another table took the place of the table.
        TableNotFound: Of every call: the table was deleted.
    """

    def __init__(self, target: T) -> None:
        self._target = target

    def __repr__(self) -> str:
        return f"<hoodoo quarantine of {self._target.path}>"

    @property
    def path(self) -> str:
        """Where its table lies, or will lie: a local folder or an s3:// address.

        Raises:
            OptionError: The table is at the root of a bucket, so that nothing can lie beside it.
        """
        return store_beside(self._target.handle.store).uri

    @property
    def table(self) -> T:
        """Its table, one like any other.

        Raises:
            TableNotFound: No row was ever set aside.
        """
        if table := opened(self._target):
            return table
        raise TableNotFound(
            f"No row of {self._target.path} was ever set aside: the first write with on_bad_rows='quarantine' that "
            "finds a bad one creates the table.",
            path=self.path,
        )

    def scan(self, columns: Sequence[str] | None = None, where: Where | None = None) -> Scan:
        """Read its rows, as `Table.scan` reads those of a table.

        Args:
            columns: The columns to read. None (default): all.
            where: A condition on the rows, as `Table.scan` takes it. None (default): all rows.

        Returns:
            The scan.

        Raises:
            TableNotFound: No row was ever set aside.
        """
        return self.table.scan(columns, where)

    def rows(self, state: str | None = None) -> pa.Table:
        """Read its rows in the order in which they came.

        Args:
            state: 'new', 'replayed' or 'dropped': only rows in this state. None (default): all rows.

        Returns:
            The rows.

        Raises:
            OptionError: `state` is none of these.
        """
        if state is not None:
            one_of("state", state, STATES)
        table = opened(self._target)
        if table is None:
            return SCHEMA.empty_table()
        found = table.scan(None, f"state = '{state}'" if state else None).to_arrow()
        return found.sort_by([("at", "ascending"), ("source", "ascending"), ("position", "ascending")])

    def count(self, state: str | None = NEW) -> int:
        """Count its rows.

        Args:
            state: 'new' (default), 'replayed' or 'dropped': only rows in this state. None: all rows.

        Returns:
            The number of rows.

        Raises:
            OptionError: `state` is none of these.
        """
        if state is not None:
            one_of("state", state, STATES)
        table = opened(self._target)
        return table.scan(None, f"state = '{state}'" if state else None).count() if table else 0

    def original(self, position: str) -> pa.Table:
        """Read a row as it came to the write, or what a source brought that was no row.

        Args:
            position: The `position` of the row, as `rows` shows it.

        Returns:
            A table of one row, with the columns and types of the batch. Of what was no row its one column is
            `payload`: the bytes as they came, as text where they are UTF-8.

        Raises:
            OptionError: No row has this position, or only the beginning of the row was kept.
        """
        table = opened(self._target)
        found = SCHEMA.empty_table()
        if table and isinstance(position, str) and is_utf8(position):
            found = table.scan(None, pc.field("position") == position).to_arrow()
        row = None
        if len(found) and not found["payload_cut"][0].as_py():
            payload = found["payload"][0].as_py() or b""
            row = row_in(payload)
            row = message_in(payload) if row is None else row
        if row is None:
            why = "only its beginning was kept; rows() has it" if len(found) else "rows() names those there are"
            raise OptionError(f"There is no whole row at {printable(position)}: {why}.", option="position")
        return row.replace_schema_metadata(None)

    def drop(self, positions: str | Iterable[str]) -> int:
        """Give up rows: they can still be read, and no replay tries them.

        Args:
            positions: The `position` of a row, or several, as `rows` shows them. Unknown ones are ignored.

        Returns:
            How many rows were given up that were not given up before.

        Raises:
            OptionError: `positions` is neither a text nor a list of texts.
        """
        wanted = {position for position in names("positions", positions) if is_utf8(position)}
        table = opened(self._target)
        if table is None or not wanted:
            return 0
        keys = table.scan(["source", "position", "state"], f"state != '{DROPPED}'").to_arrow()
        mine = keys.filter(pc.is_in(keys["position"], pa.array(sorted(wanted), pa.string())))
        for start in range(0, len(mine), ROWS_AT_ONCE):
            mark(table, table.get(mine.slice(start, ROWS_AT_ONCE).select(list(KEY))), DROPPED)
        return len(mine)

    def replay(
        self,
        overwrite: bool = False,
        missing: str = FAIL,
        time_unit: str | Mapping[str, str] | None = None,
    ) -> Replayed:
        """Try the rows in state 'new' again, by the columns and checks that the table has now.

        The oldest rows come first. Rows that the table takes are upserted and become 'replayed'; the others stay 'new'.
        A column that was renamed since is the same column. A row with a value for a column that was dropped is bad.

        Args:
            overwrite: In a table without `order_by`, a row of the quarantine would replace a newer row of its key.
                False (default) refuses that; a row that is there as it is here is no problem. True lets the row of the
                quarantine win.
            missing: What to do with columns that a row lacks: 'fail' (default) or 'null', as in `Table.upsert`.
            time_unit: The unit of times in change events, if no schema says it: 'ms', 'us' or 'ns', or a mapping of
                columns to these, as `hoodoo.sources.Kafka` takes it. None (default): the unit that the job had.

        Returns:
            What became of the rows.

        Raises:
            OptionError: An argument does not have one of its values; or the table has no `order_by`, `overwrite` is
                False, and it has another row with the key of one of these rows. Nothing was written then.
            CommitConflict: Other writers came first more than `max_retries` times. The rows up to there are replayed.
            CommitUnknown: The store did not say in time whether a commit succeeded. Replay again.
        """
        one_of("missing", missing, (FAIL, NULL))
        guarded = not self._target.handle.newest_config().order_by and not flag("overwrite", overwrite)
        units = time_units(time_unit)
        table = opened(self._target)
        return Replay(self._target, table, guarded, missing, units).run() if table else Replayed()
