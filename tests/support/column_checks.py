"""Checks that compare every read of a table with a model that knows columns by id."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
from column_model import Col, ColumnModel, paths
from hudi_rows import hudi_rows

import hoodoo
from hoodoo.format.avro.schema import convert_to_arrow_schema
from hoodoo.format.convert import is_exact
from hoodoo.format.timeline import avro as timeline_avro
from hoodoo.timeline.properties.hoodie_properties import own_columns


class ColumnChecks:
    """Comparison of a table with a model of its columns and rows.

    Attributes:
        table: The table.
        model: Columns and rows that the table must have.
        rng: Generator of random choices.
        last: Number of the newest slot.
        done: Names of the steps so far.
    """

    table: hoodoo.Table
    model: ColumnModel
    rng: random.Random
    last: int
    done: list[str]

    def _cursor(self, seq: int) -> hoodoo.Cursor:
        return hoodoo.Cursor(self.table.cursor.table, seq)

    def _readable(self) -> list[int]:
        head = self.table.handle.history.head()
        return [seq for seq in range(1, self.last + 1) if head.readable(seq)]

    def found(self, rows: pa.Table) -> list[Any]:
        return sorted(rows.to_pylist(), key=lambda row: row["id"])

    def check(self) -> None:
        model, table, rng = self.model, self.table, self.rng
        schema = pa.schema([(c.name, c.arrow) for c in model.columns])
        want = [model.named(row) for _, (row, _) in sorted(model.rows.items())]
        rows = table.scan().to_arrow()
        assert rows.schema.remove_metadata() == schema == table.schema.remove_metadata()
        same(self.found(rows), want)
        assert table.scan().count() == len(want)
        some_columns = [c.name for c in rng.sample(model.columns, rng.randint(1, len(model.columns)))]
        narrow = table.scan(columns=some_columns).to_arrow().to_pylist()
        same(sorted(narrow, key=repr), sorted(({n: row[n] for n in some_columns} for row in want), key=repr))
        keys = rng.sample(range(12), 4)
        same(
            table.get([{"id": key, "part": "pq"[key % 2]} for key in keys]).to_pylist(),
            [model.named(model.rows[key][0]) for key in keys if key in model.rows],
        )
        self._check_filter(want)
        self._check_past()

    def _check_filter(self, want: list[dict[str, Any]]) -> None:
        """A value of each flat column, looked for: no bound of an older type or name may hide it."""
        import pyarrow.compute as pc

        for column in self.model.columns:
            values = [row[column.name] for row in want if row[column.name] is not None]
            if isinstance(column.kind, str) or not values:
                continue
            value = self.rng.choice(values)
            literal = pa.scalar(value, column.kind)
            for compare, matches in (
                (pc.field(column.name) == literal, lambda v, x=value: v == x),
                (pc.field(column.name) >= literal, lambda v, x=value: v >= x),
            ):
                if pa.types.is_boolean(column.kind) and ">=" in str(compare):
                    continue
                found = self.found(self.table.scan(where=compare).to_arrow())
                same(found, [r for r in want if r[column.name] is not None and matches(r[column.name])])
            found = self.found(self.table.scan(where=f"{column.name} IS NULL").to_arrow())
            same(found, [row for row in want if row[column.name] is None])

    def _check_past(self) -> None:
        model, table, rng = self.model, self.table, self.rng
        head = table.handle.history.head()
        at = rng.choice(self._readable())
        then = model.snapshots[at]
        past = table.scan(as_of=self._cursor(at)).to_arrow()
        assert past.schema.remove_metadata() == pa.schema([(c.name, c.arrow) for c in then.columns]), at
        same(self.found(past), [model.named(row, then.columns) for _, (row, _) in sorted(then.rows.items())])
        assert table.inspect.schema_at(self._cursor(at)).remove_metadata() == past.schema.remove_metadata()
        one, two = at, rng.choice(self._readable())
        self._check_changes(one, two, diff=True)  # in either order
        readable = [seq for seq in self._readable() if seq >= head.min_readable]
        since, until = sorted((rng.choice(readable), rng.choice(readable)))
        end = model.snapshots[until]
        newest = table.incremental(self._cursor(since), self._cursor(until)).to_arrow()
        changed = {key: row for key, (row, slot) in end.rows.items() if slot > since}
        if not any(name.startswith("restore") for name in self.done):
            same(self.found(newest), [model.named(row, end.columns) for _, row in sorted(changed.items())])
        self._check_changes(since, until)

    def _check_changes(self, since: int, until: int, diff: bool = False) -> None:
        end, start = self.model.snapshots[until], self.model.snapshots[since]
        there = {c.id for _, c, _ in paths(start.columns)}
        # what was retired at the beginning, and came back by a restore, may stand in files from before
        back = {c.id for _, c, _ in paths(end.columns) if c.id not in there and c.id <= start.last}
        sure = {c.name for c in end.columns if not back & {one.id for _, one, _ in paths((c,))}}
        got: dict[int, Any] = {}
        try:
            versions = "diff" if diff else "net"
            found = self.table.changes(self._cursor(since), self._cursor(until), versions=versions)
            found = found.to_arrow().to_pylist()
        except hoodoo.UnsupportedTable:
            assert back or self._narrowed(start.columns, end.columns)
            return
        if self._narrowed(start.columns, end.columns):  # by a restore
            return
        before, after = self.model.as_of(since, end.columns), self.model.as_of(until, end.columns)
        for change in found:
            key = (change["after"] or change["before"])["id"]
            assert key not in got
            got[key] = (change["op"], change["before"], change["after"])
        assert {key for key, (op, *_) in got.items() if op == "i"} == set(after) - set(before)
        assert {key for key, (op, *_) in got.items() if op == "d"} == set(before) - set(after)
        for key, (_, old, new) in got.items():
            if old is not None:
                same([{n: old[n] for n in old if n in sure}], [{n: before[key][n] for n in old if n in sure}])
            if new is not None:
                same([new], [after[key]])
        for key in before.keys() & after.keys():
            differs = any(not equal(before[key][n], after[key][n]) for n in sure)
            assert key in got or not differs or self._restored(since, until), (key, before[key], after[key])
            wrote = start.rows[key][1] != end.rows[key][1]
            assert wrote or key not in got or self._restored(since, until), f"{key} was not written"

    def _restored(self, since: int, until: int) -> bool:
        return any(name.startswith("restore") for name in self.done)

    def _narrowed(self, start: tuple[Col, ...], end: tuple[Col, ...]) -> bool:
        then = {c.id: c.kind for _, c, _ in paths(start)}
        return any(
            not isinstance(c.kind, str) and c.id in then and then[c.id] != c.kind and not is_exact(then[c.id], c.kind)
            for _, c, _ in paths(end)
        )

    def check_with_hudi(self) -> None:
        """Another implementation, which goes by names, reads the same."""
        names = [column.name for column in self.model.columns]
        rows = [{name: row[name] for name in names} for row in hudi_rows(self.table.path)]
        want = [self.model.named(row) for _, (row, _) in sorted(self.model.rows.items())]
        same(sorted(rows, key=lambda row: row["id"]), want)

    def verify(self) -> None:
        assert self.table.verify().problems == []
        self._check_published()

    def _check_published(self) -> None:
        """Each completed instant says the columns as of its slot; that of a compaction those of its plan. The largest
        requested instant says what the columns are now: Hudi's readers go by it.
        """
        history = hoodoo.open(self.table.path).handle.history
        said = {}
        for slot in history.slots(max(0, history.head().min_readable - 1), self.last):
            if not slot.commits and not slot.compacts:
                continue
            name = "commit" if slot.compacts else slot.action
            [path] = (Path(self.table.path) / ".hoodie/timeline").glob(f"{slot.instant}_*.{name}")
            record = timeline_avro.decode_timeline_file(path.read_bytes())
            columns = self.model.snapshots[slot.plan_seq if slot.compacts else slot.seq].columns
            text = (record.get("extraMetadata") or {}).get("schema")
            said[slot.instant] = names = own_columns(convert_to_arrow_schema(text))
            assert names == pa.schema([(c.name, c.arrow) for c in columns]), slot.seq
        if said:
            assert said[max(said)] == pa.schema([(c.name, c.arrow) for c in self.model.columns])


def equal(left: Any, right: Any) -> bool:
    return bool(left == right)


def same(found: list[Any], want: list[Any]) -> None:
    if found != want:
        for one, other in zip(found, want, strict=False):
            if one != other:
                raise AssertionError(f"\nfound {one}\nwant  {other}")
        raise AssertionError(f"{len(found)} rows, want {len(want)}: {found} {want}")
