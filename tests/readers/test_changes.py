"""Changes of random histories with all operations and services equal what a dict says, on both table types: nothing
missed, nothing twice.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi_rows import hudi_rows
from model_changes import gone_at, net, replay, step
from table_machine import SCHEMA, Machine
from tiers import sized

import hoodoo
from hoodoo.format.names import instant_of_ms

CASES = [
    (kind, partition, order)
    for kind in ("merge_on_read", "copy_on_write")
    for partition in ((), ("city",))
    for order in ("ts", None)
]
KEPT = {
    ("merge_on_read", ("city",), None): "before",
    ("copy_on_write", (), "ts"): "before_after",
    ("copy_on_write", ("city",), None): "keys",
}
"""Cases whose tables keep Hudi's change log too, which the readers then look into."""
SEEDS = int(os.environ.get("HOODOO_MODEL_SEEDS", sized(1, 2)))
STEPS = 40


def cursor(machine: Machine, seq: int) -> hoodoo.Cursor:
    return hoodoo.Cursor(machine.table.cursor.table, seq)


def images(rows: dict[Any, tuple[dict[str, Any], int]]) -> dict[Any, dict[str, Any]]:
    return {identity: {name: row[name] for name in SCHEMA.names} for identity, (row, _) in rows.items()}


def listed(changes: list[tuple[Any, Any]]) -> list[str]:
    def image(row: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if row is None else {name: row[name] for name in SCHEMA.names}

    return sorted(repr((op, image(before), image(after))) for _, (op, before, after) in changes)


def shown(rows: pa.Table) -> list[str]:
    return sorted(repr((row["op"], row["before"], row["after"])) for row in rows.to_pylist())


@pytest.fixture(
    scope="module",
    params=[pytest.param(case, marks=pytest.mark.both) for case in CASES],
    ids=lambda case: "+".join(map(str, case)),
)
def machines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Machine]:
    """Tables with a history each; every seed another one."""
    kind, partition, order = request.param
    made = []
    for seed in range(SEEDS):
        machine = Machine(
            tmp_path_factory.mktemp("table") / "t", kind, ("a", "b"), partition, order, seed, KEPT.get(request.param)
        )
        for _ in range(STEPS):
            machine.step()
        made.append(machine)
    return made


def ranges(machine: Machine) -> list[tuple[int, int]]:
    """All ranges of the newest slots, and some that reach further back."""
    least = max(1, machine.table.handle.history.head().min_readable)
    near = range(max(least, machine.last - 3), machine.last + 1)
    some = [(machine.rng.randint(least, machine.last), machine.last) for _ in range(3)]
    return [(since, until) for since in near for until in near if since <= until] + some


def test_net_changes_are_the_difference_of_the_snapshots(machines: list[Machine]) -> None:
    for machine in machines:
        for since, until in ranges(machine):
            found = machine.table.changes(cursor(machine, since), cursor(machine, until))
            assert found.cursor.seq == until
            assert shown(found.to_arrow()) == listed(
                net(machine.model.snapshots[since], machine.model.snapshots[until])
            )
            assert found.count() == len(found.to_arrow())


def test_the_instant_of_a_change_is_that_of_the_last_commit_that_wrote_or_deleted_the_row(
    machines: list[Machine],
) -> None:
    for machine in machines:
        model = machine.model
        for since, until in ranges(machine):
            before, after = model.snapshots[since], model.snapshots[until]
            want = {}
            for identity, (op, _, _) in net(before, after):
                want[identity] = gone_at(model, identity, since, until) if op == "d" else after[identity][1]
            found = machine.table.changes(cursor(machine, since), cursor(machine, until)).to_arrow().to_pylist()
            assert {model.identity(row["after"] or row["before"]): row["instant"] for row in found} == {
                identity: machine.table.handle.history.slot(seq).instant for identity, seq in want.items()
            }


def test_a_diff_is_the_difference_in_either_direction(machines: list[Machine]) -> None:
    for machine in machines:
        for since, until in ranges(machine):
            there, back = cursor(machine, since), cursor(machine, until)
            assert shown(machine.table.changes(there, back, versions="diff").to_arrow()) == listed(
                net(machine.model.snapshots[since], machine.model.snapshots[until])
            )
            assert shown(machine.table.changes(back, there, versions="diff").to_arrow()) == listed(
                net(machine.model.snapshots[until], machine.model.snapshots[since])
            )


def test_all_versions_are_what_each_commit_did_in_the_order_of_commits(machines: list[Machine]) -> None:
    for machine in machines:
        for since, until in ranges(machine):
            rows = machine.table.changes(cursor(machine, since), cursor(machine, until), versions="all").to_arrow()
            order = [machine.table.handle.history.slot(seq).instant for seq in range(since + 1, until + 1)]
            seqs = [since + 1 + order.index(instant) for instant in rows["instant"].to_pylist()]
            assert seqs == sorted(seqs)
            for seq in range(since + 1, until + 1):
                did = rows.filter(pa.array([one == seq for one in seqs], pa.bool_()))
                assert shown(did) == listed(step(machine.model.snapshots[seq - 1], machine.model.snapshots[seq])), (
                    f"slot {seq}"
                )


def test_replaying_all_versions_rebuilds_the_table_row_for_row_at_every_commit(machines: list[Machine]) -> None:
    for machine in machines:
        least = max(1, machine.table.handle.history.head().min_readable)
        rows = images(machine.model.snapshots[least])
        for seq in range(least, machine.last):
            found = (
                machine.table.changes(cursor(machine, seq), cursor(machine, seq + 1), versions="all")
                .to_arrow()
                .to_pylist()
            )
            rows = replay(rows, found, machine.model)
            assert repr(sorted(rows.items(), key=repr)) == repr(
                sorted(images(machine.model.snapshots[seq + 1]).items(), key=repr)
            )


def test_from_the_earliest_position_a_replay_begins_with_nothing(machines: list[Machine]) -> None:
    for machine in machines:
        want = sorted(map(repr, images(machine.model.rows).values()))
        for versions in ("net", "all"):
            found = machine.table.changes("earliest", versions=versions).to_arrow().to_pylist()
            assert sorted(map(repr, replay({}, found, machine.model).values())) == want


def test_batches_give_the_same_changes_as_one_table(machines: list[Machine]) -> None:
    for machine in machines:
        least = max(1, machine.table.handle.history.head().min_readable)
        for versions in ("net", "all"):
            found = machine.table.changes(cursor(machine, least), versions=versions)
            assert shown(found.batches(rows=3).read_all()) == shown(found.to_arrow())
            parts = [task() for task in found.tasks()]
            assert shown(pa.concat_tables([found.schema.empty_table(), *parts])) == shown(found.to_arrow())


def test_an_incremental_pull_with_deletes_keeps_another_table_the_same(machines: list[Machine], tmp_path: Path) -> None:
    for number, machine in enumerate(machines):
        source = machine.table
        least = max(1, source.handle.history.head().min_readable)
        copy = hoodoo.create(
            tmp_path / str(number), SCHEMA, key=("a", "b"), partition_by=source.partition_by, type=source.type
        )  # the source decided what is newer
        copy.insert(source.scan(as_of=cursor(machine, least)))
        for until in range(least + 1, machine.last + 1):
            copy.upsert(source.incremental(cursor(machine, until - 1), cursor(machine, until), deletes=True))
            assert machine.found(copy.scan()) == machine.want(machine.model.snapshots[until])


def test_following_the_table_gives_every_change_once(machines: list[Machine]) -> None:
    for machine in machines:
        least = max(1, machine.table.handle.history.head().min_readable)
        for most in (None, 1, 3):
            rows, last = images(machine.model.snapshots[least]), least
            for found in machine.table.follow(
                cursor(machine, least), most_commits=most, timeout_seconds=0, versions="all"
            ):
                rows, last = replay(rows, found.to_arrow().to_pylist(), machine.model), found.cursor.seq
                assert repr(sorted(rows.items(), key=repr)) == repr(
                    sorted(images(machine.model.snapshots[last]).items(), key=repr)
                )
            assert not any(slot.writes_rows for slot in machine.table.handle.history.slots(last, machine.last))


def test_changes_of_matching_rows_are_the_difference_of_filtered_snapshots(machines: list[Machine]) -> None:
    for machine in machines:
        for since, until in ranges(machine):

            def kept(seq: int, machine: Machine = machine) -> dict[Any, tuple[dict[str, Any], int]]:
                rows = machine.model.snapshots[seq]
                return {
                    identity: ({"a": row["a"], "ts": row["ts"]}, slot)
                    for identity, (row, slot) in rows.items()
                    if row["ts"] >= 2 and row["v"] is not None
                }

            found = machine.table.changes(
                cursor(machine, since), cursor(machine, until), columns=["a", "ts"], where="ts >= 2 AND v IS NOT NULL"
            ).to_arrow()
            assert shown(found) == sorted(repr(change) for _, change in net(kept(since), kept(until)))


def test_single_keys_are_found_at_every_position(machines: list[Machine]) -> None:
    for machine in machines:
        least = max(1, machine.table.handle.history.head().min_readable)
        for _ in range(6):
            at = machine.rng.randint(least, machine.last)
            keys = [
                {
                    "a": machine.rng.choice("abcdefgh"),
                    "b": machine.rng.randint(0, 1),
                    "city": machine.rng.choice(["p", "q/r", "ü"]),
                }
                for _ in range(4)
            ]
            named = list(dict.fromkeys((*machine.model.key, *machine.model.partition_by)))
            rows = machine.model.snapshots[at]
            asked = list(dict.fromkeys(tuple(key[name] for name in named) for key in keys))
            want = [row for row, _ in rows.values() if tuple(row[name] for name in named) in asked]
            found = machine.table.get([{name: key[name] for name in named} for key in keys], as_of=cursor(machine, at))
            assert machine.found_in(found) == sorted(repr({name: row[name] for name in SCHEMA.names}) for row in want)
            anywhere = machine.table.get([{"a": key["a"], "b": key["b"]} for key in keys], as_of=cursor(machine, at))
            pairs = {(key["a"], key["b"]) for key in keys}
            assert machine.found_in(anywhere) == sorted(
                repr({name: row[name] for name in SCHEMA.names})
                for row, _ in rows.values()
                if (row["a"], row["b"]) in pairs
            )


def test_the_hudi_package_names_the_same_rows_as_changed_in_a_range(machines: list[Machine]) -> None:
    """Its bounds are times of completion. It merges only the logs of the range: so with an ordering it names rows too
    that lost to older ones, and of partial updates it shows nothing but the columns that they set.
    """
    for machine in machines:
        for since, until in ranges(machine):
            slots = [machine.table.handle.history.slot(seq) for seq in (since, until)]
            theirs = hudi_rows(
                machine.table.path,
                since=instant_of_ms(slots[0].completed_at),
                until=instant_of_ms(slots[1].completed_at),
            )
            ours = machine.table.incremental(cursor(machine, since), cursor(machine, until), meta=True)
            between = machine.table.handle.history.slots(since, until)
            if any(file.partial for slot in between for file in slot.files):
                named = ["_hoodie_partition_path", "_hoodie_record_key"]
                found = ours.to_arrow().select(named).to_pylist()
                assert sorted(map(repr, found)) == sorted(repr({name: row[name] for name in named}) for row in theirs)
                continue
            ours = machine.table.incremental(cursor(machine, since), cursor(machine, until))
            if machine.table.order_by:
                assert set(machine.found(ours)) <= set(machine.plain(theirs)), (since, until)
            else:
                assert machine.found(ours) == machine.plain(theirs), (since, until)
