"""A machine that changes a table's columns, writes, serves and restores at random, and compares every read with a model
that knows columns by id.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from column_checks import ColumnChecks
from column_model import ABSENT, LEAVES, WIDER, Col, ColumnModel, cast, edited, paths, some

import hoodoo
from hoodoo.compactor.compaction import plans
from hoodoo.compactor.compaction.log_compaction import compact_logs
from hoodoo.compactor.compaction.triggers import behind
from hoodoo.timeline.columns.no_default import NO_DEFAULT

_FIXED = ("id", "part", "ts")
_NAMES = ("a", "b", "c", "d", "e")


class ColumnMachine(ColumnChecks):
    """kind: of the table. ordered: does `ts` say which version is newer?"""

    def __init__(self, path: Path, kind: str, ordered: bool, seed: int) -> None:
        self.rng = random.Random(seed)
        schema = pa.schema([("id", pa.int64()), ("part", pa.string()), ("ts", pa.int64()), ("a", pa.int32())])
        options: dict[str, Any] = {"compact_after_logs": self.rng.choice([None, 3]), "clean_every": None}
        options |= {"checkpoint_every": 3}
        if seed % 2:
            options["target_file_bytes"] = 1
        order = {"order_by": "ts"} if ordered else {}
        self.table = hoodoo.create(path, schema, key="id", partition_by="part", type=kind, **order, **options)
        self.handles = [self.table, hoodoo.open(path)]
        self.ordered = ordered
        columns = tuple(Col(n + 1, name, schema.field(name).type) for n, name in enumerate(schema.names))
        self.model = ColumnModel(columns, 4)
        self.model.snapshots[1] = self.model.freeze()
        self.last = 1
        self.done: list[str] = []

    # ---- one step
    def step(self) -> None:
        chances = {"upsert": 12, "keep": 2, "delete": 4, "evolve": 4, "lacking": 3, "overwrite": 0.5}
        chances |= {"add": 4, "drop": 2, "rename": 2, "move": 1, "widen": 3, "several": 1}
        chances |= {
            "compact": 1.5,
            "plan": 1,
            "clean": 1,
            "cluster": 1.5,
            "merge_logs": 1,
            "restore": 0.7,
            "save": 0.7,
            "forget": 0.3,
        }
        name = self.rng.choices(list(chances), list(chances.values()))[0]
        self.done.append(name)
        before = self.model.freeze()
        self.table = self.rng.choice(self.handles)
        getattr(self, name)()
        self._remember(before)

    def _remember(self, before: Any) -> None:
        """Rows of this step carry the slot of its commit; slots before it are plans, and changes of columns."""
        head = self.table.handle.history.head().seq
        wrote = self.table.cursor.seq
        assert head == wrote
        mine = getattr(self, "_slot", 0) or head
        self._slot = 0
        self.model.rows = {key: (row, mine if slot == -1 else slot) for key, (row, slot) in self.model.rows.items()}
        between = ColumnModel(before.columns, before.last, dict(before.rows))
        for seq in range(self.last + 1, head + 1):
            if seq < mine:
                if self.table.handle.history.slot(seq).columns:
                    between.become(self.model.columns)
                self.model.snapshots[seq] = between.freeze()
            else:
                self.model.snapshots[seq] = self.model.freeze()
        self.last = head

    def arrow(self, rows: list[dict[str, Any]], columns: tuple[Col, ...]) -> pa.Table:
        schema = pa.schema([(column.name, column.arrow) for column in columns])
        table = pa.Table.from_pylist(rows, schema=schema)
        if self.rng.random() < 0.3 and len(rows) > 1:  # in chunks, and as a slice
            cut = self.rng.randint(0, len(rows))
            table = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
        return table

    def fresh(self, columns: tuple[Col, ...], most: int = 6) -> dict[int, dict[int, Any]]:
        found = {}
        for key in self.rng.sample(range(12), self.rng.randint(1, most)):
            row = {column.id: some(self.rng, column) for column in columns}
            for column in columns:
                if column.name in _FIXED:
                    fixed = {"id": key, "part": "pq"[key % 2], "ts": self.rng.randint(0, 5)}
                    row[column.id] = fixed[column.name]
            found[key] = row
        return found

    def _apply(self, rows: dict[int, dict[int, Any]], keep: bool = False) -> None:
        ts = next(column.id for column in self.model.columns if column.name == "ts")
        for key, row in rows.items():
            old = self.model.rows.get(key)
            if old and (keep or self.ordered and row[ts] < old[0][ts]):
                continue
            self.model.rows[key] = (row, -1)

    # ---- writes
    def upsert(self) -> None:
        rows = self.fresh(self.model.columns)
        columns = tuple(self.rng.sample(self.model.columns, len(self.model.columns)))
        batch = self.arrow([self.model.named(row) for row in rows.values()], columns)
        self._slot = self.table.upsert(batch, evolve=self.rng.random() < 0.3).cursor.seq
        self._apply(rows)

    def keep(self) -> None:
        rows = self.fresh(self.model.columns, 4)
        batch = self.arrow([self.model.named(row) for row in rows.values()], self.model.columns)
        self._slot = self.table.insert(batch, existing="keep").cursor.seq
        self._apply(rows, keep=True)

    def overwrite(self) -> None:
        rows = self.fresh(self.model.columns, 4)
        batch = self.arrow([self.model.named(row) for row in rows.values()], self.model.columns)
        self._slot = self.table.insert_overwrite(batch, whole_table=True).cursor.seq
        self.model.rows = {}
        self._apply(rows)

    def delete(self) -> None:
        keys = self.rng.sample(range(12), self.rng.randint(1, 3))
        batch = pa.table({"id": keys, "part": ["pq"[key % 2] for key in keys]})
        self._slot = self.table.delete(batch).cursor.seq
        for key in keys:
            self.model.rows.pop(key, None)

    def lacking(self) -> None:
        """A batch without some columns, and without fields of structs."""
        free = [column for column in self.model.columns if column.name not in _FIXED]
        gone = set(self.rng.sample(free, self.rng.randint(0, len(free))))
        there = tuple(column for column in self.model.columns if column not in gone)
        for _, column, around in paths(there):
            if around and around.kind == "struct" and len(around.children) > 1 and self.rng.random() < 0.5:
                now = next(c for _, c, _ in paths(there) if c.id == around.id)
                if len(now.children) > 1:
                    there = edited(there, column.id, None)
        rows = self.fresh(there)
        batch = self.arrow([self.model.named(row, there) for row in rows.values()], there)
        self._slot = self.table.upsert(batch, missing="null").cursor.seq
        given = {column.id: column for column in there}
        full = {}
        for key, row in rows.items():
            full[key] = {
                c.id: cast(row[c.id], given[c.id], c) if c.id in given else None if c.default is ABSENT else c.default
                for c in self.model.columns
            }
        self._apply(full)

    def evolve(self) -> None:
        columns, defaults = self.model.columns, []
        for _ in range(self.rng.randint(1, 2)):
            how = self.rng.choice(["new", "field", "wider"])
            if how == "new" and (column := self._new_column(columns)):
                column = replace(column, default=None)
                columns = (*columns, column)
                defaults.append(column.name)
            elif how == "field" and (structs := [c for _, c, _ in paths(columns) if c.kind == "struct"]):
                struct = self.rng.choice(structs)
                columns = edited(columns, struct.id, self._with_field(struct))
            elif how == "wider":
                flat = [c for c in columns if c.name not in _FIXED and not isinstance(c.kind, str)]
                wider = [
                    (c, kind)
                    for c in flat
                    for kind in WIDER.get(str(c.kind), ())
                    if not pa.types.is_string(kind) and not pa.types.is_float32(c.kind)
                ]
                if wider:
                    column, kind = self.rng.choice(wider)
                    columns = edited(columns, column.id, replace(column, kind=kind, default=_default(column, kind)))
        rows = self.fresh(columns)
        for row in rows.values():  # a wider type is taken where a value needs it
            for column in columns:
                was = next((c for c in self.model.columns if c.id == column.id), column)
                if was.kind != column.kind and row[column.id] is None:
                    row[column.id] = some(random.Random(3), column)
        needed = []
        for column in columns:
            was = next((c for c in self.model.columns if c.id == column.id), None)
            narrow = was is not None and not isinstance(column.kind, str) and was.kind != column.kind
            if narrow and was is not None and all(_fits(row[column.id], was.kind) for row in rows.values()):
                column = replace(column, kind=was.kind, default=was.default)
            needed.append(column)
        batch = self.arrow([self.model.named(row, columns) for row in rows.values()], columns)
        try:
            self._slot = self.table.upsert(batch, evolve=True).cursor.seq
        except hoodoo.RewriteNeeded:  # a name that files still hold
            self.done[-1] += " refused"
            return
        own = {column.id: column for column in columns}
        self.model.become(tuple(needed))
        self._apply({key: {c.id: cast(row[c.id], own[c.id], c) for c in needed} for key, row in rows.items()})

    # ---- changes of columns
    def _change(self, columns: tuple[Col, ...], *alterations: Any) -> None:
        seq = self.table.cursor.seq
        try:
            if self.rng.random() < 0.5:
                self.table.alter(list(alterations), rewrite=True)
            else:
                self.table.alter(list(alterations))
        except hoodoo.RewriteNeeded as needed:
            assert needed.details["groups"] > 0 and self.table.cursor.seq == seq
            self.table.alter(list(alterations), rewrite=True)
        self.model.become(columns)
        assert self.table.schema.remove_metadata() == pa.schema([(c.name, c.arrow) for c in columns])
        self.done[-1] += f" {alterations}"

    def _new_column(self, columns: tuple[Col, ...]) -> Col | None:
        names = [name for name in _NAMES if name not in {column.name for column in columns}]
        if not names:
            return None
        name, how = self.rng.choice(names), self.rng.random()
        number = self.model.new_id()
        if how < 0.6:
            return Col(number, name, self.rng.choice(LEAVES))
        leaf = Col(self.model.new_id(), "x", self.rng.choice(LEAVES[:6]))
        struct = (leaf, Col(self.model.new_id(), "y", pa.string()))
        if how < 0.75:
            return Col(number, name, "struct", struct)
        kind = self.rng.choice(["list", "map"])
        inner = Col(self.model.new_id(), "item", "struct", struct) if self.rng.random() < 0.6 else leaf
        return Col(number, name, kind, (inner,))

    def _with_field(self, struct: Col) -> Col:
        names = [n for n in ("x", "y", "z", "w") if n not in {c.name for c in struct.children}]
        if not names:
            return struct
        kind = self.rng.choice(LEAVES[:6])
        return replace(struct, children=(*struct.children, Col(self.model.new_id(), self.rng.choice(names), kind)))

    def add(self) -> None:
        structs = [(path, c) for path, c, _ in paths(self.model.columns) if c.kind == "struct"]
        if structs and self.rng.random() < 0.5:
            path, struct = self.rng.choice(structs)
            grown = self._with_field(struct)
            if grown != struct:
                new = grown.children[-1]
                columns = edited(self.model.columns, struct.id, grown)
                self._change(columns, hoodoo.AddColumn(f"{path}.{new.name}", new.arrow))
            return
        if (column := self._new_column(self.model.columns)) is None:
            return
        default: Any = NO_DEFAULT
        if self.rng.random() < 0.5:
            default = None if isinstance(column.kind, str) else some(self.rng, column)
            column = replace(column, default=default)
        where = self.rng.choice(["last", "first", "after"])
        change = hoodoo.AddColumn(column.name, column.arrow, default)
        columns = (*self.model.columns, column)
        if where == "first":
            change, columns = replace(change, first=True), (column, *self.model.columns)
        elif where == "after":
            at = self.rng.randrange(len(self.model.columns))
            change = replace(change, after=self.model.columns[at].name)
            columns = (*self.model.columns[: at + 1], column, *self.model.columns[at + 1 :])
        self._change(columns, change)

    def _pick(self) -> tuple[str, Col, Col | None] | None:
        free = [one for one in paths(self.model.columns) if one[1].name not in _FIXED or one[2]]
        return self.rng.choice(free) if free else None

    def drop(self) -> None:
        if not (found := self._pick()) or found[2] and (found[2].kind != "struct" or len(found[2].children) < 2):
            return
        self._change(edited(self.model.columns, found[1].id, None), hoodoo.DropColumn(found[0]))

    def rename(self) -> None:
        if not (found := self._pick()) or found[2] and found[2].kind != "struct":
            return
        path, column, around = found
        beside = {c.name for c in (around.children if around else self.model.columns)}
        names = [n for n in (("x", "y", "z", "w") if around else _NAMES) if n not in beside]
        if names:
            to = self.rng.choice(names)
            columns = edited(self.model.columns, column.id, replace(column, name=to))
            self._change(columns, hoodoo.RenameColumn(path, to))

    def move(self) -> None:
        column = self.rng.choice(self.model.columns)
        rest = [c for c in self.model.columns if c is not column]
        if self.rng.random() < 0.3:
            self._change((column, *rest), hoodoo.MoveColumn(column.name, first=True))
        else:
            at = self.rng.randrange(len(rest))
            columns = (*rest[: at + 1], column, *rest[at + 1 :])
            self._change(columns, hoodoo.MoveColumn(column.name, after=rest[at].name))

    def widen(self) -> None:
        if not (found := self._pick()):
            return
        path, column, _ = found
        if kinds := WIDER.get(str(column.kind)):
            kind = self.rng.choice(kinds)
            columns = edited(self.model.columns, column.id, replace(column, kind=kind, default=_default(column, kind)))
            self._change(columns, hoodoo.WidenColumn(path, kind))

    def several(self) -> None:
        """Two columns swap their names, or one goes and another comes under its name."""
        free = [c for c in self.model.columns if c.name not in _FIXED]
        if len(free) < 2:
            return
        one, two = self.rng.sample(free, 2)
        if self.rng.random() < 0.5:
            columns = edited(self.model.columns, one.id, replace(one, name=two.name))
            columns = edited(columns, two.id, replace(two, name=one.name))
            steps = [(one.name, "spare"), (two.name, one.name), ("spare", two.name)]
            self._change(columns, *(hoodoo.RenameColumn(*step) for step in steps))
        else:
            new = Col(self.model.new_id(), one.name, self.rng.choice(LEAVES))
            columns = (*(c for c in self.model.columns if c is not one), new)
            self._change(columns, hoodoo.DropColumn(one.name), hoodoo.AddColumn(new.name, new.arrow))

    # ---- services
    def compact(self) -> None:
        self.table.compact()

    def plan(self) -> None:
        plans.commit_compaction_plan(self.table.handle.context(), plans.plan_groups_with_logs)

    def clean(self) -> None:
        self.table.maintenance.clean(retain_hours=0, retain_commits=self.rng.randint(2, 6))

    def cluster(self) -> None:
        self.table.maintenance.cluster()

    def merge_logs(self) -> None:
        if self.table.type == "merge_on_read":
            compact_logs(self.table.handle.context(), lambda view: behind(view, 2))

    def save(self) -> None:
        at = self.rng.choice(self._readable())
        saved = {cursor.seq for cursor in self.table.savepoints.list().values()}
        try:
            self.table.savepoints.create(f"s{self.last}", self._cursor(at))
        except hoodoo.OptionError as refused:  # a commit takes one, whichever of the slots up to the next names it
            assert "under a savepoint already" in refused.message and any(seq <= at for seq in saved)

    def forget(self) -> None:
        if names := sorted(self.table.savepoints.list()):
            self.table.savepoints.delete(self.rng.choice(names))

    def restore(self) -> None:
        saved = [cursor.seq for cursor in self.table.savepoints.list().values()]
        at = self.rng.choice([*saved, *self._readable()[-5:]])
        self._slot = self.table.restore(self._cursor(at)).cursor.seq
        self.model.restore(at)


def _default(column: Col, kind: pa.DataType) -> Any:
    if column.default is ABSENT or column.default is None:
        return column.default
    from column_model import widened

    assert isinstance(column.kind, pa.DataType)
    return widened(column.default, column.kind, kind)


def _fits(value: Any, kind: Any) -> bool:
    if value is None:
        return True
    try:
        pa.array([value]).cast(kind)
    except pa.ArrowInvalid:
        return False
    return not (pa.types.is_integer(kind) and value != int(value))
