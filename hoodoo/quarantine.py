"""The quarantine of a table: the rows that its writes set aside, in an ordinary table beside it, `<path>__quarantine`.

A bad row is kept once, whatever is retried and in whatever order: its key says from where it came (`source`) and what
its bytes are (`position`), and what is there is never overwritten by a write. Knows tables by what they can do; which
rows are bad is found in writers/bad_rows.py.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hoodoo.arguments import flag, names, number_from, one_of
from hoodoo.compactor.cleaning.purge import PurgeReport
from hoodoo.errors import (
    ColumnError,
    CommitUnknown,
    DataError,
    HoodooError,
    KeyExists,
    OptionError,
    TableExists,
    TableNotFound,
    TooManyBadRows,
)
from hoodoo.format.avro.schema import normalise
from hoodoo.format.equality import equal_values
from hoodoo.format.keys import record_keys
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.rows import compact, take
from hoodoo.handle import TableHandle
from hoodoo.readers.predicate import checks
from hoodoo.readers.predicate.filter import Where
from hoodoo.readers.scan import Scan
from hoodoo.results import WriteResult
from hoodoo.storage.probe import require_conforming
from hoodoo.storage.redact import printable
from hoodoo.storage.store import Store
from hoodoo.timeline import config as configuration
from hoodoo.timeline import create_table
from hoodoo.timeline.config import MERGE_ON_READ, TableConfig
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.nesting import require_no_table_inside, require_place_of_its_own
from hoodoo.timeline.table_options import Options
from hoodoo.writers import operations
from hoodoo.writers.bad_rows import BYTES_MAX, KEPT, BadRows, Limits, detail, faults, row_of, without
from hoodoo.writers.batch import Batch, check_columns, prepare
from hoodoo.writers.cast import cast
from hoodoo.writers.column_alignment import FAIL, NULL, filled
from hoodoo.writers.renaming import renamed
from hoodoo.writers.sources import InProcess
from hoodoo.writers.value_validation import sound_columns

SUFFIX = "__quarantine"
NEW, REPLAYED, DROPPED = "new", "replayed", "dropped"
STATES = (NEW, REPLAYED, DROPPED)
SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("position", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("payload", pa.binary()),
        ("payload_cut", pa.bool_()),
        ("application", pa.string()),
        ("number", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("state", pa.string()),
        ("resolved_at", pa.timestamp("us", "UTC")),
    ]
)
_KEY = ("source", "position")
_UNFIT = re.compile(r",(?=source:|position:)|^_(?=_(?:null|empty)__$)")  # what no value of a composite key may hold
_NO_ROW = "The payload is no row in Arrow's format: somebody else wrote it. Drop it."
_ROWS_AT_ONCE = 200  # payloads in memory together
_NAMED = 10
_TRIES = 20


def limits_of(on_bad_rows: str, max_bad_rows: int, max_bad_share: float) -> Limits | None:
    """The arguments of a write: None where a bad row fails the batch. Raises OptionError."""
    one_of("on_bad_rows", on_bad_rows, ("fail", "quarantine"))
    rows = number_from("max_bad_rows", max_bad_rows, 0, whole=True, optional=False)
    share = number_from("max_bad_share", max_bad_share, 0, optional=False)
    return Limits(rows, share) if on_bad_rows == "quarantine" else None


# ---------------------------------------------------------------- setting rows aside


def set_aside(
    target: TableHandle, bad: BadRows, limits: Limits | None, transaction: tuple[str, int] | None = None
) -> int:
    """Keep the rows of `bad` in the quarantine of `target`, before the others are committed; how many. Raises
    TooManyBadRows, with the first hundred kept, where `limits` are exceeded.
    """
    if limits is None or not bad.count:
        return 0
    too_many = bad.partial or limits.exceeded(bad.count, bad.rows)
    place = _place_beside(target)
    kept = bad.found.slice(0, KEPT) if too_many else bad.found
    _keep(_opened_or_made(place, target), _as_rows(kept, target, transaction))
    if too_many:
        reasons = dict(Counter(bad.found["reason"].to_pylist()).most_common())
        why = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        most = f"{limits.rows:,} rows, {limits.share:.4g} of a batch and {BYTES_MAX >> 20} MiB"
        raise TooManyBadRows(
            f"{'More than ' if bad.partial else ''}{len(bad.found):,} of {bad.rows:,} rows are bad ({why}); at most "
            f"{most} may be. Nothing was written but the first {len(kept)} of them, into {place.uri}: look at them, "
            "correct the batch, or raise max_bad_rows or max_bad_share.",
            bad=bad.count,
            rows=bad.rows,
            quarantine=place.uri,
            reasons=reasons,
        )
    return bad.count


def _place_beside(target: TableHandle) -> Store:
    place = target.store.beside(SUFFIX)
    if place is None:
        raise OptionError(
            f"There is no place beside {target.store.uri} for its quarantine. Create tables in a folder, or under a "
            "prefix in a bucket.",
            path=target.store.uri,
        )
    return place


def _as_rows(found: pa.Table, target: TableHandle, transaction: tuple[str, int] | None) -> pa.Table:
    """Bad rows as the quarantine has them. Equal rows of a batch are told apart by their number among each other."""
    application, number = transaction or ("", None)
    seen: Counter[str] = Counter()
    positions = []
    for digest in found["hash"].to_pylist():
        positions.append(f"{digest}:{seen[digest]}")
        seen[digest] += 1
    now = dt.datetime.fromtimestamp(target.environment.now_ms() / 1000, dt.timezone.utc)

    def each(value: object, kind: pa.DataType) -> pa.Array:
        return pa.array([value], kind).take(pa.array([0] * len(found)))

    columns = {
        "source": each(_UNFIT.sub("%", application) or target.config.name, pa.string()),
        "position": pa.array(positions, pa.string()),
        **{name: found[name] for name in ("reason", "detail", "payload", "payload_cut")},
        "application": each(application, pa.string()),
        "number": each(number, pa.int64()),
        "at": each(now, SCHEMA.field("at").type),
        "state": each(NEW, pa.string()),
        "resolved_at": each(None, SCHEMA.field("resolved_at").type),
    }
    return pa.table(columns, schema=SCHEMA)


def _keep(quarantine: TableHandle, rows: pa.Table) -> None:
    context = quarantine.context()
    batch = prepare(rows, quarantine.config)
    quarantine.finished(context, operations.insert(context, InProcess(batch), "keep", False))


def _opened_or_made(place: Store, target: TableHandle) -> TableHandle:
    """The quarantine table in `place`, made where there is none; others may make it at the same time."""
    for attempt in range(_TRIES):
        try:
            return TableHandle(place, target.environment)
        except TableNotFound:
            try:
                _make(place, target.config, target.environment)
            except TableExists:
                target.environment.sleep(0.05 * attempt)
    return TableHandle(place, target.environment)


def _make(place: Store, config: TableConfig, environment: Environment) -> None:
    require_place_of_its_own(place)
    require_no_table_inside(place)
    require_conforming(place)
    name = re.sub(r"[^A-Za-z0-9_]", "_", config.name) + SUFFIX
    properties = configuration.new_properties(name, normalise(SCHEMA), _KEY, (), None, MERGE_ON_READ, Options())
    create_table.create(place, properties, environment)


# ---------------------------------------------------------------- looking at them, trying again


class Target(Protocol):
    """A table, as far as its quarantine knows it."""

    handle: TableHandle

    def __init__(self, store: Store, environment: Environment = ...) -> None: ...

    @property
    def path(self) -> str: ...

    def scan(self, columns: Sequence[str] | None = None, where: Where | None = None) -> Scan: ...

    def get(self, keys: pa.Table) -> pa.Table: ...

    def upsert(self, data: pa.Table, *, missing: str = ...) -> WriteResult: ...

    def insert(self, data: pa.Table, *, missing: str = ...) -> WriteResult: ...

    def purge(self, data: pa.Table, older_than_hours: float = 24.0) -> PurgeReport: ...


T = TypeVar("T", bound=Target)


@dataclass(frozen=True)
class Replayed:
    """What a replay did: rows that are in the table now, rows that are bad still, rows of which only the beginning was
    kept. details: what is wrong with the first ten that are bad.
    """

    replayed: int = 0
    bad: int = 0
    cut: int = 0
    details: tuple[str, ...] = ()

    def _and(self, replayed: int, details: Sequence[str]) -> Self:
        named = (*self.details, *details)[:_NAMED]
        return replace(self, replayed=self.replayed + replayed, bad=self.bad + len(details), details=named)


class Quarantine(Generic[T]):
    """The rows that writes of a table set aside: what `Table.quarantine()` gives. Empty until the first bad row.

    Every call looks at the table first. Raises TableReplaced where another table took its place, TableNotFound.
    """

    def __init__(self, target: T) -> None:
        self._target = target

    def __repr__(self) -> str:
        return f"<hoodoo quarantine of {self._target.path}>"

    @property
    def path(self) -> str:
        """Where its table is, or will be. Raises OptionError where there is no place for one."""
        return _place_beside(self._target.handle).uri

    @property
    def table(self) -> T:
        """Its table, one like any other. Raises TableNotFound where no row was ever set aside."""
        if table := self._table():
            return table
        raise TableNotFound(
            f"No row of {self._target.path} was ever set aside: the first write with on_bad_rows='quarantine' that "
            "finds a bad one creates the table.",
            path=self.path,
        )

    def _table(self) -> T | None:
        """Its table, None where no row was ever set aside."""
        self._target.handle.look()  # the quarantine in this place may be another table's
        place = self._target.handle.store.beside(SUFFIX)
        try:
            return type(self._target)(place, self._target.handle.environment) if place else None
        except TableNotFound:
            return None

    def scan(self, columns: Sequence[str] | None = None, where: Where | None = None) -> Scan:
        """Its rows, as Table.scan reads those of a table. Raises TableNotFound where no row was ever set aside."""
        return self.table.scan(columns, where)

    def rows(self, state: str | None = None) -> pa.Table:
        """Its rows in the order in which they came: those in `state` ('new', 'replayed' or 'dropped'), or all."""
        if state is not None:
            one_of("state", state, STATES)
        table = self._table()
        if table is None:
            return SCHEMA.empty_table()
        found = table.scan(None, f"state = '{state}'" if state else None).to_arrow()
        return found.sort_by([("at", "ascending"), ("source", "ascending"), ("position", "ascending")])

    def count(self, state: str | None = NEW) -> int:
        """How many rows are in `state`; None: in any."""
        if state is not None:
            one_of("state", state, STATES)
        table = self._table()
        return table.scan(None, f"state = '{state}'" if state else None).count() if table else 0

    def original(self, position: str) -> pa.Table:
        """The row at `position` as it came, in a table of one row. Raises OptionError for one that is not there, or of
        which only the beginning was kept.
        """
        table = self._table()
        found = SCHEMA.empty_table()
        if table and isinstance(position, str) and position.isascii():
            found = table.scan(None, pc.field("position") == position).to_arrow()
        row = _row(found["payload"][0].as_py()) if len(found) and not found["payload_cut"][0].as_py() else None
        if row is None:
            why = "only its beginning was kept; rows() has it" if len(found) else "rows() names those there are"
            raise OptionError(f"There is no whole row at {printable(position)}: {why}.", option="position")
        return row.replace_schema_metadata(None)

    def drop(self, positions: str | Iterable[str]) -> int:
        """Give up the rows at `positions`: they stay to be looked at, and no replay tries them. How many were given up
        that were not yet. Raises OptionError.
        """
        wanted = {position for position in names("positions", positions) if position.isascii()}
        table = self._table()
        if table is None or not wanted:
            return 0
        keys = table.scan(["source", "position", "state"], f"state != '{DROPPED}'").to_arrow()
        mine = keys.filter(pc.is_in(keys["position"], pa.array(sorted(wanted), pa.string())))
        for start in range(0, len(mine), _ROWS_AT_ONCE):
            self._mark(table, table.get(mine.slice(start, _ROWS_AT_ONCE).select(list(_KEY))), DROPPED)
        return len(mine)

    def replay(self, overwrite: bool = False, missing: str = FAIL) -> Replayed:
        """Try the rows in state 'new' again, the oldest first, by the columns and checks that the table has now. Those
        that it takes are upserted and become 'replayed'; the others stay. A column that was renamed since is the same
        column; a row with a value for one that was dropped is bad.

        overwrite: in a table without order_by an old row would replace a newer one of its key. There a key that exists
        is refused with OptionError, before anything is written, unless overwrite=True, or its row is the one that would
        be written. missing: as of Table.upsert.
        """
        one_of("missing", missing, (FAIL, NULL))
        guarded = self._target.handle.newest_config().order_by is None and not flag("overwrite", overwrite)
        table = self._table()
        if table is None:
            return Replayed()
        keys = self._waiting(table)
        if guarded:
            for _, good, _ in self._tries(table, keys, missing):
                self._absent(good, missing)
        done = Replayed(cut=table.scan(["position"], f"state = '{NEW}' AND payload_cut").count())
        for mine, good, details in self._tries(table, keys, missing):
            if len(good):
                self._write(good, guarded, missing)
                self._note(table, mine)
            done = done._and(len(mine), details)
        return done

    def _waiting(self, table: T) -> pa.Table:
        """Keys of the rows to try, the oldest first."""
        found = table.scan([*_KEY, "at"], f"state = '{NEW}' AND NOT payload_cut").to_arrow()
        return found.sort_by([("at", "ascending"), ("source", "ascending"), ("position", "ascending")]).select(_KEY)

    def _tries(self, table: T, keys: pa.Table, missing: str) -> Iterator[tuple[pa.Table, pa.Table, list[str]]]:
        """(rows of the quarantine whose payloads are good now, those payloads as a batch, what is wrong with the
        others), so many rows at a time as have the same columns.
        """
        config = self._target.handle.newest_config()
        held = checks.of(config)
        for start in range(0, len(keys), _ROWS_AT_ONCE):
            rows = table.get(keys.slice(start, _ROWS_AT_ONCE))
            lost = len(rows)
            for places, data, why in _of_today(_decoded(rows), config):
                lost -= len(places)
                if why:
                    yield rows.slice(0, 0), data.slice(0, 0), [why]
                    continue
                mine = rows.take(pa.array(places))
                try:
                    check_columns(data.schema, config, False, missing)
                    whole = filled(data, config, missing)
                    wrong = np.array(sorted(faults(whole, config, held, len(data), missing)), np.int64)
                except DataError as problem:  # of their columns: none of these rows fits
                    yield mine.slice(0, 0), data.slice(0, 0), [problem.message] * len(data)
                    continue
                details = [detail(whole.slice(row, 1), config, held, missing) for row in wrong.tolist()]
                yield without(mine, wrong), without(data, wrong), details
            if lost:
                yield rows.slice(0, 0), config.schema.empty_table(), [_NO_ROW] * lost

    def _absent(self, rows: pa.Table, missing: str) -> pa.Table:
        """Those of `rows` that are not in the table as they are: a replay may have ended before it was noted. Raises
        OptionError where another row has the key of one.
        """
        config = self._target.handle.newest_config()
        keys = rows.select(list(dict.fromkeys((*config.key, *config.partition_by))))
        stored = self._target.get(keys) if len(keys) else keys
        if not len(stored):
            return rows
        there, wanted = prepare(stored, config), prepare(rows, config, missing=missing)
        place = pc.index_in(_identities(wanted), _identities(there))
        at, found = place.drop_null().to_numpy(), np.flatnonzero(place.is_valid())
        same = equal_values(*(_as_structs(one, places) for one, places in ((wanted.rows, found), (there.rows, at))))
        same &= ~wanted.delete[found]
        if not same.all():
            key = take(wanted.rows, found[~same][:1]).select(list(config.key)).to_pylist()[0]
            raise self._refused(f"{int((~same).sum())} of them are there (the first: {printable(key)})")
        rest = np.setdiff1d(np.arange(len(wanted)), found)
        return rows.slice(0, 0) if not len(rest) else take(wanted.rows, rest).drop_columns([RECORD_KEY])

    def _write(self, rows: pa.Table, guarded: bool, missing: str) -> None:
        if not guarded:
            self._target.upsert(rows, missing=missing)
            return
        try:
            if len(rest := self._absent(rows, missing)):
                self._target.insert(rest, missing=missing)
        except KeyExists as problem:
            raise self._refused(f"somebody wrote one: {problem.message}") from None

    def _refused(self, why: str) -> OptionError:
        return OptionError(
            "The table has no order_by, so that a row from the quarantine would replace what was written for its key "
            f"since; {why}. Pass overwrite=True if the rows in the quarantine are to win, or drop() them.",
            option="overwrite",
        )

    def _note(self, table: T, rows: pa.Table) -> None:
        """Mark `rows`, which the table has by now, as replayed."""
        try:
            self._mark(table, rows, REPLAYED)
        except CommitUnknown:
            raise
        except HoodooError as problem:
            raise type(problem)(
                f"{len(rows)} rows of the quarantine are in {self._target.path} now, which could not be noted in "
                f"{table.path} ({problem.message}). Replay again: a row that is there as it is here is only noted.",
                **problem.details,
            ) from None

    def _mark(self, table: T, rows: pa.Table, state: str) -> None:
        now = dt.datetime.fromtimestamp(self._target.handle.environment.now_ms() / 1000, dt.timezone.utc)
        told = {"state": state, "resolved_at": now}
        for name, value in told.items():
            kind = SCHEMA.field(name).type
            column = pa.array([value], kind).take(pa.array([0] * len(rows)))
            rows = rows.set_column(rows.schema.get_field_index(name), name, column)
        table.upsert(rows)


def purge_beside(quarantine: Quarantine[T], batch: Batch, older_than_hours: float) -> tuple[PurgeReport | None, int]:
    """Make the rows of `quarantine` unrecoverable that have one of the keys of `batch`, whatever their state: the
    report of that, and how many rows are there whose keys nobody can read, as only their beginning was kept.
    """
    table = quarantine._table()
    if table is None:
        return None, 0
    config = quarantine._target.handle.newest_config()
    wanted = batch.rows[RECORD_KEY].unique()
    keys, unread, doomed = table.scan(list(_KEY)).to_arrow(), 0, [SCHEMA.empty_table().select(_KEY)]
    for start in range(0, len(keys), _ROWS_AT_ONCE):
        rows = table.get(keys.slice(start, _ROWS_AT_ONCE))
        unread += len(rows)
        for places, data in _decoded(rows):
            unread -= len(places)
            named = renamed(data, config.columns.columns, leave_out=True)
            doomed.append(take(rows, np.array(places)[_having(named, config, wanted)]).select(_KEY))
    found = pa.concat_tables(doomed)
    if not len(found):
        return None, unread
    report = table.purge(found, older_than_hours)

    def placed(files: Iterable[str]) -> tuple[str, ...]:
        return tuple(f"{table.path}/{file}" for file in files)

    return replace(report, holders=placed(report.holders), pending=placed(report.pending)), unread


def _decoded(rows: pa.Table) -> Iterator[tuple[list[int], pa.Table]]:
    """The payloads of `rows` of the quarantine that are whole: places of rows with equal columns that stand together,
    and those payloads as one table. One that is no row any more is left out.
    """
    cut = rows["payload_cut"].to_pylist()
    payloads = (None if cut[place] else _row(content.as_py()) for place, content in enumerate(rows["payload"]))
    whole = [(place, row) for place, row in enumerate(payloads) if row is not None]
    for _, group in groupby(whole, lambda one: (str(one[1].schema), one[1].schema.metadata)):
        mine = list(group)
        yield [place for place, _ in mine], compact(pa.concat_tables([row for _, row in mine]))


def _of_today(
    decoded: Iterable[tuple[list[int], pa.Table]], config: TableConfig
) -> Iterator[tuple[list[int], pa.Table, str]]:
    """Payloads under the names that their columns have now; a row that cannot be so alone, with why."""
    for places, data in decoded:
        try:
            yield places, renamed(data, config.columns.columns), ""
        except ColumnError as problem:
            if len(data) == 1:
                yield places, data, problem.message
            else:
                alone = (([place], data.slice(at, 1)) for at, place in enumerate(places))
                yield from _of_today(alone, config)


def _row(content: bytes | None) -> pa.Table | None:
    try:
        return row_of(content) if content else None
    except (pa.ArrowException, OSError, ValueError):
        return None


def _identities(batch: Batch) -> pa.Array:
    """Of each row: its partition path and record key as one text."""
    paths = pa.array(batch.partitions, pa.string()).take(pa.array(batch.codes))
    return pc.binary_join_element_wise(paths, batch.rows[RECORD_KEY].combine_chunks(), "\0")


def _as_structs(rows: pa.Table, places: np.ndarray) -> pa.StructArray:
    picked = compact(take(rows, places))
    return pa.StructArray.from_arrays([column.combine_chunks() for column in picked.columns], picked.schema.names)


def _having(rows: pa.Table, config: TableConfig, wanted: pa.Array) -> np.ndarray:
    """Mask: is the row's key among `wanted`, whatever its partition? A key that no table takes is not."""
    if not set(config.key) <= set(rows.schema.names):
        return np.zeros(len(rows), bool)
    try:
        sound = sound_columns(rows, config.key, config.key)
        fitted = [cast(sound[name], config.schema.field(name)) for name in config.key]
        keys = record_keys(pa.table(fitted, names=list(config.key)), config.key, config.partition_by)
    except DataError:
        if len(rows) == 1:
            return np.zeros(1, bool)
        half = len(rows) // 2
        parts = (rows.slice(0, half), rows.slice(half))
        return np.concatenate([_having(part, config, wanted) for part in parts])
    found: np.ndarray = pc.is_in(keys, wanted).to_numpy(zero_copy_only=False)
    return found


__all__ = ["Quarantine", "Replayed", "Target", "limits_of", "purge_beside", "set_aside"]
