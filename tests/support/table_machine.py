"""A machine that applies random operations to a table and to its model alike, and compares them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hudi_rows import hudi_rows
from table_model import Model

import hoodoo
from hoodoo.compactor.clustering import cluster
from hoodoo.compactor.compaction import log_compaction, plans
from hoodoo.compactor.compaction.triggers import behind
from hoodoo.timeline.views.totals import count

SCHEMA = pa.schema(
    [
        ("a", pa.string()),
        ("b", pa.int64()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.float64()),
        ("tags", pa.list_(pa.string())),
    ]
)

FILTERS = [
    ("ts >= 3", lambda row: row["ts"] >= 3),
    ("ts < 2 AND v IS NOT NULL", lambda row: row["ts"] < 2 and row["v"] is not None),
    ("a = 'c'", lambda row: row["a"] == "c"),
    (
        "city = 'p' AND a > 'd' OR b = 1 AND ts = 5",
        lambda row: row["city"] == "p" and row["a"] > "d" or row["b"] == 1 and row["ts"] == 5,
    ),
]

SQL_FILTERS = [
    ("ts % 2 = 1", lambda row: row["ts"] % 2 == 1),
    ("city = 'ü' AND upper(a) < 'E'", lambda row: row["city"] == "ü" and row["a"] < "e"),
    ("tags[1] = 'x'", lambda row: bool(row["tags"]) and row["tags"][0] == "x"),
]


def _doubled(rows: pa.Table) -> dict[str, Any]:
    return {"v": pc.multiply(rows["v"], 2)}


UPDATES: list[tuple[Any, Any]] = [
    ({"v": "v + 1"}, lambda row: {"v": None if row["v"] is None else row["v"] + 1}),
    ({"v": "NULL", "tags": "['x']"}, lambda row: {"v": None, "tags": ["x"]}),
    ({"v": 0.5}, lambda row: {"v": 0.5}),
    (_doubled, lambda row: {"v": None if row["v"] is None else row["v"] * 2}),
]


def larger_and_newer(stored: pa.Table, newer: pa.Table) -> dict[str, Any]:
    """The larger `v` of both rows, and the ordering value of the newer one."""
    return {"v": pc.max_element_wise(stored["v"], newer["v"]), "ts": newer["ts"]}


class Machine:
    def __init__(
        self,
        path: Path,
        kind: str,
        key: tuple[str, ...],
        partition: tuple[str, ...],
        order: str | tuple[str, ...] | None,
        seed: int,
        change_log: str | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        options: dict[str, Any] = {
            "compact_after_logs": 4,
            "clean_every": None,
            "checkpoint_every": 3,
            "change_log": change_log,
        }
        if seed % 2:
            options["target_file_bytes"] = 1  # every file group is full: rows that come back lie elsewhere
        options["log_format"] = "parquet" if (seed + len(key) + len(partition)) % 2 else "avro"
        self.table = hoodoo.create(path, SCHEMA, key=key, partition_by=partition, order_by=order, type=kind, **options)
        self.send = lambda rows: rows
        self.model = Model(key, partition, (order,) if isinstance(order, str) else order or ())
        self.model.remember(1)
        self.last = 1

    def row(self) -> dict[str, Any]:
        rng = self.rng
        tags = rng.choice([None, [], ["x"], ["y", None]])
        named = {"a": rng.choice("abcdefgh"), "b": rng.randint(0, 1), "city": rng.choice(["p", "q/r", "ü"])}
        return named | {"ts": rng.randint(0, 5), "v": rng.choice([None, rng.random()]), "tags": tags}

    def batch(self, most: int = 6) -> list[dict[str, Any]]:
        return [self.row() for _ in range(self.rng.randint(0, most))]

    def arrow(self, rows: list[dict[str, Any]], flagged: bool = False) -> pa.Table:
        return self.send(
            pa.Table.from_pylist(
                rows, schema=SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_())) if flagged else SCHEMA
            )
        )

    def step(self) -> None:
        chances = {
            "upsert": 10,
            "flagged": 6,
            "insert": 3,
            "keep": 3,
            "bulk": 2,
            "delete": 6,
            "overwrite": 1,
            "whole": 0.4,
            "drop": 1,
            "update": 3,
            "delete_where": 2,
            "merge": 3,
            "columns": 4,
            "modes": 4,
        }
        chances |= {"compact": 2, "compact_logs": 2, "plan": 2, "clean": 1, "cluster": 2}
        name = self.rng.choices(list(chances), list(chances.values()))[0]
        getattr(self, name)()
        seq = self.table.cursor.seq
        for slot in range(self.last + 1, seq + 1):
            self.model.snapshots.setdefault(slot, dict(self.model.rows))
        self.last = seq

    def next_slot(self) -> int:
        return self.table.cursor.seq + 1

    def wrote(self, result: hoodoo.WriteResult, before: dict[Any, Any]) -> None:
        """Rows of this step carry the slot of the commit, which may come after a plan that had to run first."""
        seq = result.cursor.seq
        for identity, (row, slot) in list(self.model.rows.items()):
            if slot == -1:
                self.model.rows[identity] = row, seq
        for slot in range(self.last + 1, seq):
            self.model.snapshots[slot] = before
        self.model.remember(seq)

    def upsert(self) -> None:
        rows, before = self.batch(), dict(self.model.rows)
        result = self.table.upsert(self.arrow(rows))
        self.counted(result, self.model.upsert(rows, -1))
        self.wrote(result, before)

    hashes_tell = True  # whether a key is new; False where keys share their hashes

    def counted(self, result: hoodoo.WriteResult, counts: dict[str, int]) -> None:
        """A count that is not exact is a bound, and can be made exact."""
        if not self.hashes_tell:
            exact = result.exact_counts()
            assert exact.inserted + exact.updated == counts["inserted"] + counts["updated"]
            assert (exact.deleted, exact.stale) == (counts["deleted"], counts["stale"])
            return
        names = ("inserted", "updated", "deleted", "stale")
        assert {name: getattr(result.exact_counts(), name) for name in names} == counts
        told = {name: getattr(result, name) for name in names}
        assert told == counts if result.exact else all(told[name] >= counts[name] for name in names[:3])

    def flagged(self) -> None:
        rows, before = (
            [{**row, "_hoodie_is_deleted": self.rng.random() < 0.5} for row in self.batch()],
            dict(self.model.rows),
        )
        result = self.table.upsert(self.arrow(rows, flagged=True))
        self.counted(result, self.model.upsert(rows, -1))
        self.wrote(result, before)

    def columns(self) -> None:
        """Of some columns, named or those that the batch has."""
        rng, model, before = self.rng, self.model, dict(self.model.rows)
        flagged, new_keys = rng.random() < 0.3, rng.choice(("insert", "insert", "ignore", "fail"))
        rows = [row | {"_hoodie_is_deleted": rng.random() < 0.5} if flagged else row for row in self.batch()]
        fixed, chosen = {*model.key, *model.partition_by}, ["ts", *rng.sample(["v", "tags"], rng.randint(0, 2))]
        batch = self.arrow(rows, flagged)
        if given := rng.random() < 0.5:
            taken = {*fixed, *chosen, *model.order_by}
            batch = batch.select([name for name in batch.schema.names if name not in SCHEMA.names or name in taken])
        columns = "given" if given else chosen
        unknown = [row for row in model._newest(rows).values() if not model.names_stored(row)]
        if new_keys == "fail" and any(not row.get("_hoodie_is_deleted") for row in unknown):
            with pytest.raises(hoodoo.KeyNotFound):
                self.table.upsert(batch, columns=columns, new_keys=new_keys)
            return
        result = self.table.upsert(batch, columns=columns, new_keys=new_keys)
        plain = [
            {name: row[name] for name in (*SCHEMA.names, *(["_hoodie_is_deleted"] if flagged else []))} for row in rows
        ]
        set_ = {*chosen, *model.order_by}
        model.upsert_merged(plain, lambda old, new: old | {name: new[name] for name in set_}, new_keys, -1)
        assert result.exact and result.inserted == len(model.rows.keys() - before.keys())
        assert result.deleted == len(before.keys() - model.rows.keys())
        self.wrote(result, before)

    def modes(self) -> None:
        """By a merge mode: nulls keep what is stored, or a function."""
        rng, model, before = self.rng, self.model, dict(self.model.rows)
        flagged, custom = rng.random() < 0.3, rng.random() < 0.5
        rows = [row | {"_hoodie_is_deleted": rng.random() < 0.5} if flagged else row for row in self.batch()]
        merge: Any = hoodoo.CustomMerge(larger_and_newer) if custom else "keep_non_null"
        result = self.table.upsert(self.arrow(rows, flagged), merge=merge)

        def met(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
            if custom:
                larger = max((one["v"] for one in (old, new) if one["v"] is not None), default=None)
                return old | {"v": larger, "ts": new["ts"]}
            return {name: old[name] if new[name] is None else new[name] for name in new}

        def met_or_new(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
            return new if old["ts"] is None else met(old, new)

        model.upsert_merged(rows, met_or_new, "insert", -1)
        assert result.exact and result.inserted == len(model.rows.keys() - before.keys())
        assert result.deleted == len(before.keys() - model.rows.keys())
        self.wrote(result, before)

    def insert(self) -> None:
        rows, before = self.batch(3), dict(self.model.rows)
        if self.model.holds_any(rows):
            seq = self.table.cursor.seq
            with pytest.raises(hoodoo.KeyExists):
                self.table.insert(self.arrow(rows))
            assert self.table.cursor.seq == seq
        else:
            result = self.table.insert(self.arrow(rows))
            self.model.insert(rows, -1)
            self.wrote(result, before)

    def keep(self, bulk: bool = False) -> None:
        rows, before = self.batch(), dict(self.model.rows)
        result = self.table.insert(self.arrow(rows), existing="keep", bulk=bulk)
        self.model.insert(rows, -1)
        assert result.inserted == len(self.model.rows) - len(before)
        self.wrote(result, before)

    def bulk(self) -> None:
        self.keep(bulk=True)

    def delete(self) -> None:
        rows, before = self.batch(4), dict(self.model.rows)
        named = list(dict.fromkeys((*self.model.key, *self.model.partition_by)))
        whole = self.rng.random() < 0.5  # further columns are ignored
        result = self.table.delete(self.arrow(rows) if whole else self.arrow(rows).select(named))
        self.model.delete(rows)
        assert result.exact_counts().deleted == len(before) - len(self.model.rows)
        self.wrote(result, before)

    def update(self) -> None:
        """By SQL, and by a function on Arrow tables."""
        where, matches = self.rng.choice([*FILTERS, *SQL_FILTERS, ("ts >= 0", lambda row: True)])
        set_, new_values = self.rng.choice(UPDATES)
        before = dict(self.model.rows)
        result = self.table.update(set_, where=where)
        self.model.update(new_values, matches, -1)
        assert result.exact
        assert result.updated == sum(slot == -1 for _, slot in self.model.rows.values())
        self.wrote(result, before)

    def delete_where(self) -> None:
        where, matches = self.rng.choice([*FILTERS, *SQL_FILTERS, ("city = 'p'", lambda row: row["city"] == "p")])
        before = dict(self.model.rows)
        result = self.table.delete(where=where)
        self.model.delete_where(matches)
        assert result.exact_counts().deleted == len(before) - len(self.model.rows)
        self.wrote(result, before)

    def merge(self) -> None:
        """Of matched rows some are deleted and the others get a value of both rows; some of the new ones are inserted,
        and now and then rows without a source row are deleted.
        """
        rows, before, key = self.batch(), dict(self.model.rows), self.model.identity
        rows = list({key(row): row for row in rows}.values())
        source = {key(row): row for row in rows}
        merging = (
            self.table.merge(self.arrow(rows))
            .when_matched_delete(where="source.ts = 5")
            .when_matched_update({"v": "coalesce(source.v, 0) + coalesce(target.v, 1)"})
            .when_not_matched_insert_all(where="source.ts > 0")
        )
        by_source = self.rng.random() < 0.3
        if by_source:
            merging = merging.when_not_matched_by_source_delete(where="target.ts = 4")
        result = merging.execute()
        for identity, (stored, _) in before.items():
            row = source.get(identity)
            if row and row["ts"] == 5 or not row and by_source and stored["ts"] == 4:
                del self.model.rows[identity]
            elif row and (v := (row["v"] or 0.0) + (1.0 if stored["v"] is None else stored["v"])) != stored["v"]:
                self.model.rows[identity] = {**stored, "v": v}, -1
        new = [row for row in rows if key(row) not in before and row["ts"] > 0]
        self.model.insert(new, -1)
        assert result.exact and (result.inserted, result.stale) == (len(new), 0)
        self.wrote(result, before)

    def overwrite(self, whole: bool = False) -> None:
        rows, before = self.batch(), dict(self.model.rows)
        result = self.table.insert_overwrite(self.arrow(rows), whole_table=whole)
        if rows or whole:
            self.model.overwrite(rows, -1, whole)
            new = sum(slot == -1 for _, slot in self.model.rows.values())
            exact = result.exact_counts()
            assert (exact.inserted, exact.deleted) == (new, len(before) - len(self.model.rows) + new)
        self.wrote(result, before)

    def whole(self) -> None:
        self.overwrite(whole=True)

    def drop(self) -> None:
        if not self.model.partition_by:
            return
        before = dict(self.model.rows)
        some = [self.row() for _ in range(1)]
        result = self.table.delete_partitions([{name: row[name] for name in self.model.partition_by} for row in some])
        self.model.drop_partitions({tuple(row[name] for name in self.model.partition_by) for row in some})
        assert result.exact_counts().deleted == len(before) - len(self.model.rows)
        self.wrote(result, before)

    def compact(self) -> None:
        self.table.compact()

    def compact_logs(self) -> None:
        log_compaction.compact_logs(self.table.handle.context(), lambda view: behind(view, 2))

    def plan(self) -> None:
        """Decide a compaction and leave it to others."""
        plans.commit_compaction_plan(self.table.handle.context(), plans.plan_groups_with_logs)

    def clean(self) -> None:
        self.table.maintenance.clean(retain_hours=0, retain_commits=self.rng.randint(1, 4))

    def cluster(self) -> None:
        """Pack, or sort along some columns. Nobody else writes, so no unit yields."""
        by = self.rng.choice([(), ("b",), ("city", "a"), ("ts", "v", "a")])
        assert (
            cluster.cluster_files(
                self.table.handle.context(), by=by, order=self.rng.choice(["linear", "zorder", "hilbert"])
            ).yielded
            == 0
        )

    # ---- what must hold
    def found(self, scan: Any) -> list[Any]:
        return self.found_in(scan.to_arrow())

    def found_in(self, rows: pa.Table) -> list[Any]:
        return sorted(map(repr, rows.to_pylist()))

    def want(self, rows: dict[Any, tuple[dict[str, Any], int]], after: int = 0) -> list[Any]:
        return sorted(repr({name: row[name] for name in SCHEMA.names}) for row, slot in rows.values() if slot > after)

    def check_with_hudi(self) -> None:
        """Another implementation reads the same: now, and as of a random readable write. It refuses tables with several
        ordering columns.
        """
        if len(self.model.order_by) > 1:
            return
        assert self.plain(hudi_rows(self.table.path)) == self.want(self.model.rows)
        readable = max(1, self.table.handle.history.head().min_readable)
        writes = [slot for slot in self.table.handle.history.slots(readable - 1, self.last) if slot.writes_rows]
        if writes:
            slot = self.rng.choice(writes)
            assert self.plain(hudi_rows(self.table.path, as_of=slot.instant)) == self.want(
                self.model.snapshots[slot.seq]
            )

    def plain(self, rows: list[dict[str, Any]]) -> list[Any]:
        return sorted(repr({name: row[name] for name in SCHEMA.names}) for row in rows)

    def check(self) -> None:
        scan = self.table.scan()
        assert self.found(scan) == self.want(self.model.rows)
        assert scan.count() == len(self.model.rows)
        where, matches = self.rng.choice(FILTERS)
        assert self.found(self.table.scan(where=where)) == self.want(
            {identity: value for identity, value in self.model.rows.items() if matches(value[0])}
        )
        view = self.table.handle.history.head()
        assert (view.totals, view._totals().each) == (count(view.partitions).together, count(view.partitions).each)
        readable = view.min_readable
        at = self.rng.randint(max(1, readable), self.last)
        assert self.found(self.table.scan(as_of=hoodoo.Cursor(scan.cursor.table, at))) == self.want(
            self.model.snapshots[at]
        )
        until = self.rng.randint(at, self.last)
        since = self.rng.randint(0, until)
        position = "earliest" if since == 0 else str(hoodoo.Cursor(scan.cursor.table, since))
        assert self.found(self.table.incremental(position, hoodoo.Cursor(scan.cursor.table, until))) == self.want(
            self.model.snapshots[until], since
        )
