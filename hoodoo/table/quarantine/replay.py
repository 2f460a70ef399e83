"""Replay of quarantined rows."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.errors import CommitUnknown, DataError, HoodooError, KeyExists, OptionError
from hoodoo.format.equality import equal_values
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.rows import compact, take_rows
from hoodoo.readers.predicate import checks
from hoodoo.redact import printable
from hoodoo.table.quarantine.changes import DecodedChanges, decode_change_events
from hoodoo.table.quarantine.payloads import comes_from_change_event, decode_payloads, rename_to_current_columns
from hoodoo.table.quarantine.schema import KEY, NEW, REPLAYED, ROWS_AT_ONCE, SCHEMA
from hoodoo.table.quarantine.target import T
from hoodoo.writers.batches.bad_rows import describe_problem, faults, without
from hoodoo.writers.batches.batch import check_column_names, prepare_batch
from hoodoo.writers.batches.column_alignment import NULL, fill_missing_columns
from hoodoo.writers.batches.generated_columns import with_missing_partitions
from hoodoo.writers.batches.write_options import WriteOptions

_DIGITS = re.compile(r"\d+")
_NAMED = 10  # maximum number of bad rows with details
_NOT_SENT = (
    "A value was not sent, and the hoodoo version that quarantined the row did not store which value. Drop this row."
)
_NO_ROW = "Payload cannot be decoded as a row of the table. Write the row to the table yourself, and drop this payload."


@dataclass(frozen=True)
class Replayed:
    """Result of a replay.

    Attributes:
        replayed: The number of rows that are now in the table.
        bad: The number of rows that are still bad.
        cut: The number of rows that were skipped because they are truncated.
        details: One description of the problem for each of the first ten bad rows.
    """

    replayed: int = 0
    bad: int = 0
    cut: int = 0
    details: tuple[str, ...] = ()

    def _and(self, replayed: int, details: Sequence[str]) -> Self:
        named = (*self.details, *details)[:_NAMED]
        return replace(self, replayed=self.replayed + replayed, bad=self.bad + len(details), details=named)


@dataclass(frozen=True)
class Replay(Generic[T]):
    """Replay of quarantined rows into their table.

    Attributes:
        target: The table that owns the quarantine.
        table: The quarantine table.
        guarded: True if replayed rows must not replace a different row of their key.
        missing: Action for columns that a row lacks: 'fail' or 'null'.
        units: Units of times in change events without a schema, by column.
    """

    target: T
    table: T
    guarded: bool
    missing: str
    units: Mapping[str, str]

    def run(self) -> Replayed:
        keys = self._new_keys()
        if self.guarded:
            for _, good, _ in self._valid_rows(keys):
                self._absent(good, self.missing)
            for _, changes in self._changes(keys):
                self._absent(changes.rows, NULL)
        done = Replayed(cut=self.table.scan(["position"], where=f"state = '{NEW}' AND payload_cut").count())
        for mine, good, details in self._valid_rows(keys):
            if len(good):
                self._write(good)
                self._mark_replayed(mine)
            done = done._and(len(mine), details)
        for mine, changes in self._changes(keys):
            if len(changes.rows):
                self._write_changes(changes)
            if len(mine):
                self._mark_replayed(mine)
            done = done._and(len(mine), changes.details)
        return done

    def _new_keys(self) -> pa.Table:
        found = self.table.scan([*KEY, "at"], where=f"state = '{NEW}' AND NOT payload_cut").to_arrow()
        at, source, position = (found[name].to_pylist() for name in ("at", "source", "position"))
        numbered = [_DIGITS.sub(lambda digits: digits[0].zfill(20), one) for one in position]
        order = sorted(range(len(found)), key=lambda row: (at[row], source[row], numbered[row]))
        return take_rows(found, np.array(order, np.int64)).select(KEY)

    def _valid_rows(self, keys: pa.Table) -> Iterator[tuple[pa.Table, pa.Table, list[str]]]:
        """Find the quarantined rows that are valid now.

        Yields:
            Quarantine rows with valid payloads, these payloads as one batch, and descriptions of the problems of
            invalid rows. Consecutive rows with equal columns are yielded together.
        """
        config = self.target.handle.newest_config()
        held, missing = checks.load_checks(config), self.missing
        for start in range(0, len(keys), ROWS_AT_ONCE):
            rows = self._rows(keys.slice(start, ROWS_AT_ONCE), changes=False)
            not_sent = pc.equal(rows["reason"], "unavailable")
            if count := pc.sum(not_sent).as_py():
                rows = rows.filter(pc.invert(not_sent))
                yield rows.slice(0, 0), config.schema.empty_table(), [_NOT_SENT] * count
            lost = len(rows)
            for positions, data, why in rename_to_current_columns(decode_payloads(rows, config), config):
                lost -= len(positions)
                if why:
                    yield rows.slice(0, 0), data.slice(0, 0), [why]
                    continue
                mine = rows.take(pa.array(positions))
                try:
                    check_column_names(data.schema, config, False, missing)
                    whole = fill_missing_columns(data, config, missing)
                    wrong = np.array(sorted(faults(whole, config, held, len(data), missing)), np.int64)
                except DataError as problem:  # an error about columns applies to all these rows
                    yield mine.slice(0, 0), data.slice(0, 0), [problem.message] * len(data)
                    continue
                details = [describe_problem(whole.slice(row, 1), config, held, missing) for row in wrong.tolist()]
                yield without(mine, wrong), without(data, wrong), details
            if lost:
                yield rows.slice(0, 0), config.schema.empty_table(), [_NO_ROW] * lost

    def _rows(self, keys: pa.Table, changes: bool) -> pa.Table:
        """Return the quarantined rows with some keys.

        Args:
            keys: The keys of quarantine rows.
            changes: True returns only change events and rows derived from them, False only other rows.
        """
        found = self.table.get(keys)
        codes = [tuple(key.values()) for key in found.select(KEY).to_pylist()]
        order = {tuple(key.values()): at for at, key in enumerate(keys.select(KEY).to_pylist())}
        mask = [comes_from_change_event(content) is changes for content in found["payload"].to_pylist()]
        at = sorted((row for row in range(len(found)) if mask[row]), key=lambda row: order[codes[row]])
        return take_rows(found, np.array(at, np.int64))

    def _changes(self, keys: pa.Table) -> Iterator[tuple[pa.Table, DecodedChanges]]:
        """Decode quarantined change events.

        Yields:
            Quarantine rows whose changes can be written, these changes, and descriptions of the problems of invalid
            rows.
        """
        for start in range(0, len(keys), ROWS_AT_ONCE):
            rows = self._rows(keys.slice(start, ROWS_AT_ONCE), changes=True)
            for changes in decode_change_events(self.target, rows, self.units):
                yield take_rows(rows, np.array(changes.positions, np.int64)), changes

    def _write_changes(self, changes: DecodedChanges) -> None:
        if self.guarded:
            self._absent(changes.rows, NULL)
        self.target.upsert(changes.rows, missing=NULL, unavailable=changes.unavailable)

    def _absent(self, rows: pa.Table, missing: str) -> pa.Table:
        """Drop rows that the table already contains.

        The table contains such rows if an earlier replay stopped before it marked them as replayed.

        Raises:
            OptionError: The table contains a different row with one of the keys.
        """
        if not len(rows):
            return rows
        config = self.target.handle.newest_config()
        keys = with_missing_partitions(rows, config).select(list(dict.fromkeys((*config.key, *config.partition_by))))
        stored = self.target.get(keys)
        if not len(stored):
            return rows
        there, wanted = prepare_batch(stored, config), prepare_batch(rows, config, WriteOptions(missing=missing))
        index = pc.index_in(wanted.identities, there.identities)
        at, found = index.drop_null().to_numpy(), np.flatnonzero(index.is_valid())
        same = equal_values(
            *(_as_structs(one, positions) for one, positions in ((wanted.rows, found), (there.rows, at)))
        )
        same &= ~wanted.delete[found]
        if not same.all():
            key = take_rows(wanted.rows, found[~same][:1]).select(list(config.key)).to_pylist()[0]
            raise _refused(f"{int((~same).sum())} keys are already in the table, such as {printable(key)}")
        rest = np.setdiff1d(np.arange(len(wanted)), found)
        return rows.slice(0, 0) if not len(rest) else take_rows(wanted.rows, rest).drop_columns([RECORD_KEY])

    def _write(self, rows: pa.Table) -> None:
        if not self.guarded:
            self.target.upsert(rows, missing=self.missing)
            return
        try:
            if len(rest := self._absent(rows, self.missing)):
                self.target.insert(rest, missing=self.missing)
        except KeyExists as problem:
            raise _refused(f"another writer inserted a key during the replay: {problem.message}") from None

    def _mark_replayed(self, rows: pa.Table) -> None:
        try:
            set_row_state(self.table, rows, REPLAYED)
        except CommitUnknown:
            raise
        except HoodooError as problem:
            raise type(problem)(
                f"{len(rows)} quarantined rows were written to {self.target.path}, but could not be marked as "
                f"replayed in {self.table.path} ({problem.message}). Replay again: rows that are already in "
                "the table are only marked.",
                **problem.details,
            ) from None


def set_row_state(table: T, rows: pa.Table, state: str) -> None:
    """Set the state of quarantined rows."""
    now = dt.datetime.fromtimestamp(table.handle.environment.now_ms() / 1000, dt.timezone.utc)
    for name, value in {"state": state, "resolved_at": now}.items():
        column = pa.array([value], SCHEMA.field(name).type).take(pa.array([0] * len(rows)))
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    table.upsert(rows)


def _refused(why: str) -> OptionError:
    return OptionError(
        f"The table has no order_by, so a quarantined row could overwrite a newer row: {why}. "
        "Pass overwrite=True to prefer the quarantined rows, or drop() them.",
        option="overwrite",
    )


def _as_structs(rows: pa.Table, positions: np.ndarray) -> pa.StructArray:
    picked = compact(take_rows(rows, positions))
    return pa.StructArray.from_arrays([column.combine_chunks() for column in picked.columns], picked.schema.names)
