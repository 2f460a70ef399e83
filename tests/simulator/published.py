"""What Apache Hudi's readers see: the files that are there and the instants that are published, by Hudi's ordering
rules alone.

Stated after docs/format.md 11: a file counts if its instant is completed or older than the first completed one; bases
are ordered by instant; a log belongs to the slice with the largest instant at or below the log's completion; logs merge
among themselves by instant, then with the base. Knows no slots. Decoded files and merged groups are kept, so that a
look after every step is cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from table_columns import names_of, value_name

from hoodoo.format.log.block import DataBlock, DeleteBlock, decode_log, find_base_instants
from hoodoo.format.names import BaseFileName, parse_data_file
from hoodoo.format.parquet import base_file
from hoodoo.format.timeline import avro as timeline_avro

COLUMNS = pa.schema(
    [(name, pa.string()) for name in ("_hoodie_commit_time", "_hoodie_record_key")]
    + [("ts", pa.int64()), ("v", pa.int64())]
)
TIMELINE = ".hoodie/timeline/"


def columns_with(value: str) -> pa.Schema:
    """Of a row, whose value is called `value`."""
    return pa.schema([*list(COLUMNS)[:-1], pa.field(value, pa.int64())])


class Row(NamedTuple):
    ts: int
    v: int
    commit: str


class Change(NamedTuple):
    """One record of a log. row None: a delete; ts None: whatever the ordering value; place: the instant of a base file
    and the row in it that has the key, where the log says so; partial: the log holds only the columns that were set,
    and None stands for the others.
    """

    key: str
    ts: int | None
    row: Row | None
    place: tuple[str, int] | None = None
    partial: bool = False

    def over(self, old: Row | None) -> Row | None:
        """The row, with what it does not set from the one before."""
        if not self.partial or self.row is None or old is None:
            return self.row
        ts = old.ts if self.row.ts is None else self.row.ts
        return Row(ts, old.v if self.row.v is None else self.row.v, self.row.commit)


Base = dict[str, Row]
Wrong = str


class Files:
    """Decodes data files once each."""

    def __init__(self, data: dict[str, bytes], ordered: bool) -> None:
        self.data, self.ordered = data, ordered
        self._known: dict[tuple[str, str], tuple[bytes, Any]] = {}

    def _decoded(self, path: str, value: str, decode: Any) -> Any:
        data = self.data[path]
        known = self._known.get((path, value))
        if known is None or known[0] is not data:
            known = self._known[path, value] = data, decode(data)
        return known[1]

    def base(self, path: str, value: str = "v") -> Base:
        """value: what the value's column is called; null where the file has none of that name."""

        def decode(data: bytes) -> Base:
            table = base_file.read_base_file(pa.BufferReader(data), path, columns_with(value))
            commits, keys, ts, v = (column.to_pylist() for column in table.columns)
            found = {key: Row(*rest) for key, *rest in zip(keys, ts, v, commits, strict=True)}
            if len(found) != len(keys):
                raise ValueError(f"{path} holds a key twice")
            return found

        return self._decoded(path, value, decode)

    def log(self, path: str, value: str = "v") -> list[Change]:
        names = columns_with(value).names

        def decode(data: bytes) -> list[Change]:
            changes: list[Change] = []
            bases = find_base_instants(data)
            for block in decode_log(data, columns=names, strict=True, positions=bool(bases) and all(bases)):
                if isinstance(block, DataBlock):
                    there = block.rows.to_pydict()
                    commits, keys, ts, v = (there.get(name, [None] * len(block.rows)) for name in names)
                    changes += [
                        Change(key, at, Row(at, value, commit), partial=block.partial)
                        for key, at, value, commit in zip(keys, ts, v, commits, strict=True)
                    ]
                elif isinstance(block, DeleteBlock):
                    orders = (
                        block.ordering[0].to_pylist() if block.ordering and self.ordered else [None] * len(block.keys)
                    )
                    changes += [Change(key, at, None) for key, at in zip(block.keys.to_pylist(), orders, strict=True)]
                if (at := getattr(block, "positions", None)) is not None:
                    mine, n = changes[-len(at) :], len(changes) - len(at)
                    changes[n:] = [one._replace(place=(bases[0], row)) for one, row in zip(mine, at, strict=True)]
            return changes

        return self._decoded(path, value, decode)

    def in_slot_order(self, base: str, logs: tuple[str, ...], value_in: Callable[[str], str]) -> Base:
        """Each change meets the row of its key as it is then. value_in: what the value is called in a file."""
        rows = dict(self.base(base, value_in(base))) if base else {}
        for path in logs:
            self.apply(rows, self.log(path, value_in(path)))
        return rows

    def as_hudi(self, base: str, logs: tuple[str, ...], value: str) -> Base:
        """Logs are merged among themselves first, and the result meets the base row (docs/format.md 11.3). value: what
        the value is called by now, in whatever file.
        """
        top: dict[str, Change] = {}
        for changes in self._by_row(base, [self.log(path, value) for path in logs]):
            for change in changes:
                old = top.get(change.key)
                if (
                    old is None
                    or not self.ordered
                    or change.ts is None
                    or old.ts is None
                    and change.row is not None
                    or old.ts is not None
                    and change.ts >= old.ts
                ):
                    row, partial = change.over(old and old.row), change.partial and (old is None or old.partial)
                    top[change.key] = change._replace(row=row, partial=partial)
        rows = dict(self.base(base, value)) if base else {}
        self.apply(rows, list(top.values()))
        return rows

    def _by_row(self, base: str, logs: list[list[Change]]) -> list[list[Change]]:
        """As Hudi's default reader does (docs/format.md 10.7): where all records of a slice name rows of its base, they
        are of the keys that lie there, whatever keys they have.
        """
        parsed = parse_data_file(base.rpartition("/")[2])
        places = [change.place for changes in logs for change in changes]
        if parsed is None or not all(place and place[0] == parsed.instant for place in places):
            return logs
        keys = list(self.base(base))
        return [[change._replace(key=keys[change.place[1]]) for change in each if change.place] for each in logs]

    def apply(self, rows: Base, changes: list[Change]) -> None:
        for change in changes:
            key, ts, row = change.key, change.ts, change.over(rows.get(change.key))
            old = rows.get(key)
            wins = old is None or ts is None or not self.ordered or ts >= old.ts
            if wins and row is not None:
                rows[key] = row
            elif wins:
                rows.pop(key, None)


class Published:
    """Follows the store key by key; `rows` gives the snapshot as of now."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.completed: dict[str, str] = {}  # instant -> completion time, of writes
        self.first = ""
        self.archived: set[str] = set()
        self.columns: dict[str, list[str]] = {}  # instant -> the columns that its commit tells of
        self.plans: dict[str, set[str]] = {}
        self.replaced: dict[str, set[str]] = {}  # instant -> file ids that it replaced
        self.groups: dict[
            tuple[str, str], dict[str, tuple[str, bool]]
        ] = {}  # (partition, file id) -> path -> (instant, is it a base)
        self.changed = False
        self._merged: dict[tuple[str, str], tuple[Any, Base]] = {}

    def put(self, key: str) -> None:
        if key.startswith(TIMELINE):
            self._instant(key)
        elif not key.startswith(".hoodie/"):
            partition, _, name = key.rpartition("/")
            parsed = parse_data_file(name)
            if parsed:
                self.groups.setdefault((partition, parsed.file_id), {})[key] = (
                    parsed.instant,
                    isinstance(parsed, BaseFileName),
                )
                self.changed = self.changed or parsed.instant in self.completed or parsed.instant < self.first

    def delete(self, key: str) -> None:
        name = key[len(TIMELINE) :]
        if (
            key.startswith(TIMELINE)
            and ("_" in name and not key.endswith(".savepoint") or key.endswith(".compaction.requested"))
            and not name.startswith("history/")
        ):
            self._taken_back(name)
        if not key.startswith(".hoodie/"):
            partition, _, name = key.rpartition("/")
            parsed = parse_data_file(name)
            if parsed:
                self.groups[partition, parsed.file_id].pop(key, None)
                self.changed = self.changed or parsed.instant in self.completed or parsed.instant < self.first

    def _taken_back(self, name: str) -> None:
        """Protocol rule 11: nothing published goes, except into Hudi's history (protocol rule 13)."""
        time = name[:17]
        if time not in self.archived:
            raise AssertionError(f"{name} was published and is taken back")
        if not name.endswith(".requested"):
            self.completed.pop(time, None)
            self.replaced.pop(time, None)
            self.first = min(self.completed, default="")
            self.changed = True

    def _instant(self, key: str) -> None:
        name = key[len(TIMELINE) :]
        if name.startswith("history/"):
            if name.endswith(".parquet"):
                self.archived |= set(
                    pq.read_table(pa.BufferReader(self.files.data[key]), columns=["instantTime"])[
                        "instantTime"
                    ].to_pylist()
                )
            return
        time, _, rest = name.partition("_")
        if rest:
            completed, _, action = rest.partition(".")
            if action in ("commit", "deltacommit", "replacecommit"):
                self.completed[time] = completed
                self.first = min(self.completed)
                record = timeline_avro.decode_timeline_file(self.files.data[key])
                self.columns[time] = names_of(record["extraMetadata"]["schema"])
                if action == "replacecommit":
                    self.replaced[time] = {
                        file_id for ids in (record.get("partitionToReplaceFileIds") or {}).values() for file_id in ids
                    }
                self.changed = True
        elif name.endswith(".compaction.requested"):
            record = timeline_avro.decode_timeline_file(self.files.data[key])
            self.plans[name[:17]] = {operation["fileId"] for operation in record["operations"] or ()}
            self.changed = True

    def newest_columns(self) -> list[str]:
        """The columns of the table: those of the commit with the largest requested instant."""
        return self.columns[max(self.completed)] if self.completed else []

    def rows(self) -> tuple[dict[tuple[str, str], Row], Wrong]:
        """(partition, record key) -> row; and what is wrong with it, or ''."""
        gone = set().union(*self.replaced.values())
        value = value_name(self.newest_columns() or ["v"])
        found: dict[tuple[str, str], Row] = {}
        for (partition, file_id), paths in self.groups.items():
            if file_id in gone:
                continue
            bases, logs = {}, []
            for path, (time, is_base) in paths.items():
                if time not in self.completed and time >= self.first:
                    continue
                if not is_base:
                    logs.append((time, path))
                elif time in bases:
                    return found, f"{path} and {bases[time]} are two base files of one instant"
                else:
                    bases[time] = path
            if not bases and not logs:
                continue
            pending = [
                time
                for time, ids in self.plans.items()
                if file_id in ids and time not in self.completed and time not in self.archived
            ]
            if len(pending) > 1:
                return found, f"file group {file_id} is under two open plans, {pending}"
            opens, real = sorted({*bases, *pending}), max(bases, default="")
            mine = tuple(
                path
                for time, path in sorted(logs)
                if max((t for t in opens if t <= self.completed.get(time, time)), default="") >= real
            )
            slice_ = bases.get(real, ""), mine
            known = self._merged.get((partition, file_id))
            if known is None or known[0] != (*slice_, value):
                known = self._merged[partition, file_id] = (*slice_, value), self.files.as_hudi(*slice_, value)
            for key, row in known[1].items():
                if (partition, key) in found:
                    return found, f"key {key} is in two file groups of {partition}"
                found[partition, key] = row
        return found, ""
