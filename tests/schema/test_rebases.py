"""Columns change while a batch is written: what becomes of the batch, by the table of the design, and of services."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo
from hoodoo.compactor.compaction import plans
from hoodoo.compactor.compaction.log_compaction import compact_logs
from hoodoo.compactor.compaction.triggers import behind
from hoodoo.timeline.commits.transaction import Transaction
from hoodoo.timeline.slots.slot import ALTER

KINDS = ("merge_on_read", pytest.param("copy_on_write", marks=pytest.mark.deep))
STRUCT = pa.struct([("x", pa.int32()), ("y", pa.string())])
SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int32()), ("b", pa.string()), ("s", STRUCT)])
Between = Callable[[Callable[[], object]], None]


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Between:
    """between(work): `work` is done once, when the next attempt has written its files and is about to complete."""

    def arm(work: Callable[[], object]) -> None:
        complete = Transaction.complete

        def hooked(self: Transaction, draft: Any) -> Any:
            monkeypatch.setattr(Transaction, "complete", complete)
            work()
            return complete(self, draft)

        monkeypatch.setattr(Transaction, "complete", hooked)

    return arm


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> hoodoo.Table:
    made = hoodoo.create(
        tmp_path / "t", SCHEMA, key="id", type=request.param, compact_after_logs=None, clean_every=None
    )
    made.upsert([row(1), row(2)])
    return made


def row(key: int, **values: Any) -> dict[str, Any]:
    return {"id": key, "a": key, "b": f"b{key}", "s": {"x": key, "y": f"y{key}"}} | values


def other(table: hoodoo.Table) -> hoodoo.Table:
    return hoodoo.open(table.path)


def found(table: hoodoo.Table) -> dict[int, dict[str, Any]]:
    return {one["id"]: one for one in table.scan().to_arrow().to_pylist()}


# ---------------------------------------------------------------- each row of the table of rebases


@pytest.mark.parametrize("write", ["upsert", "insert", "insert_overwrite"])
def test_a_column_that_was_added_meanwhile_gets_its_default_in_the_batch(
    table: hoodoo.Table, between: Between, write: str
) -> None:
    between(lambda: other(table).alter.add_column("n", pa.int32(), default=7))
    getattr(table, write)([row(3)])
    assert found(table)[3] == row(3, n=7)


def test_a_column_that_was_added_meanwhile_without_a_default_is_null_in_the_batch(
    table: hoodoo.Table, between: Between
) -> None:
    between(lambda: other(table).alter.add_column("n", pa.int32(), first=True))
    table.upsert([row(2, a=5), row(3)])
    assert found(table) == {1: row(1, n=None), 2: row(2, a=5, n=None), 3: row(3, n=None)}


def test_a_field_that_was_added_meanwhile_is_null_in_the_batch(table: hoodoo.Table, between: Between) -> None:
    between(lambda: other(table).alter.add_column("s.z", pa.int32(), first=True))
    table.upsert([row(3), row(4, s=None)])
    assert found(table)[3]["s"] == {"z": None, "x": 3, "y": "y3"}
    assert found(table)[4]["s"] is None


def test_values_of_a_column_that_was_renamed_meanwhile_go_on_under_the_new_name(
    table: hoodoo.Table, between: Between
) -> None:
    between(lambda: other(table).alter.rename_column("a", "aa", rewrite=True))
    table.upsert([row(2, a=9), row(3)])
    assert {key: one["aa"] for key, one in found(table).items()} == {1: 1, 2: 9, 3: 3}


def test_values_of_a_field_that_was_renamed_meanwhile_go_on_under_the_new_name(
    table: hoodoo.Table, between: Between
) -> None:
    between(lambda: other(table).alter.rename_column("s.x", "xx", rewrite=True))
    table.upsert([row(3)])
    assert found(table)[3]["s"] == {"xx": 3, "y": "y3"}


def test_values_of_a_column_that_was_widened_meanwhile_are_cast(table: hoodoo.Table, between: Between) -> None:
    between(lambda: other(table).alter.widen_column("a", pa.string()))
    table.upsert([row(3)])
    assert {key: one["a"] for key, one in found(table).items()} == {1: "1", 2: "2", 3: "3"}


def test_two_columns_that_swapped_names_meanwhile_keep_their_own_values(tmp_path: Path, between: Between) -> None:
    schema = pa.schema([("id", pa.int64()), ("a", pa.int32()), ("c", pa.int32())])
    table = hoodoo.create(tmp_path / "t", schema, key="id")
    table.upsert([{"id": 1, "a": 1, "c": -1}])
    steps = [("a", "spare"), ("c", "a"), ("spare", "c")]
    between(lambda: other(table).alter([hoodoo.RenameColumn(*step) for step in steps], rewrite=True))
    table.upsert([{"id": 2, "a": 2, "c": -2}])
    assert found(table) == {1: {"id": 1, "a": -1, "c": 1}, 2: {"id": 2, "a": -2, "c": 2}}


@pytest.mark.parametrize("how", ["column", "field"])
def test_a_batch_with_values_for_what_was_dropped_meanwhile_is_refused_and_nothing_is_written(
    table: hoodoo.Table, between: Between, how: str
) -> None:
    """A field of a struct that went while the batch was written took the batch's values with it, and nobody was told:
    only columns at the top were asked.
    """
    between(lambda: other(table).alter.drop_column("a" if how == "column" else "s.x"))
    seq = table.cursor.seq
    with pytest.raises(hoodoo.ColumnError) as refused:
        table.upsert([row(3)])
    assert refused.value.details["column"] == ("a" if how == "column" else "s.x")
    assert table.cursor.seq == seq + 1 and set(found(table)) == {1, 2}


def test_a_batch_that_has_only_nulls_for_what_was_dropped_meanwhile_is_written(
    table: hoodoo.Table, between: Between
) -> None:
    between(lambda: other(table).alter([hoodoo.DropColumn("a"), hoodoo.DropColumn("s.x")]))
    table.upsert([row(3, a=None, s={"x": None, "y": "y"}), row(4, a=None, s=None)])
    assert found(table)[3] == {"id": 3, "b": "b3", "s": {"y": "y"}}


@pytest.mark.parametrize("default", [7, None])
def test_a_batch_without_a_column_that_was_dropped_meanwhile_has_no_values_for_it(
    table: hoodoo.Table, between: Between, default: int | None
) -> None:
    """The default that preparation had filled in was taken for a value of the batch."""
    table.alter.add_column("n", pa.int32(), default=default)
    between(lambda: other(table).alter.drop_column("n"))
    table.upsert([row(3)])
    assert found(table)[3] == row(3)
    table.alter.add_column("n", pa.int32(), default=1, rewrite=True)
    change = [hoodoo.DropColumn("n"), hoodoo.AddColumn("n", pa.int32(), default=2)]
    between(lambda: other(table).alter(change, rewrite=True))
    table.upsert([row(4)])
    assert found(table)[4] == row(4, n=2)


@pytest.mark.parametrize(("kind", "value"), [(pa.int64(), 7), (pa.string(), None), (pa.bool_(), None)])
def test_a_new_column_of_a_batch_that_somebody_else_added_meanwhile_is_theirs_where_its_values_are_the_same_there(
    table: hoodoo.Table, between: Between, kind: pa.DataType, value: int | None
) -> None:
    """Where text had been added, the batch's numbers became text."""
    between(lambda: other(table).alter.add_column("n", kind))
    batch = pa.Table.from_pylist([row(3, n=7)], SCHEMA.append(pa.field("n", pa.int32())))
    if value is not None:
        table.upsert(batch, evolve=True)
        assert found(table)[3]["n"] == value
        return
    with pytest.raises(hoodoo.ColumnError, match="'n'"):
        table.upsert(batch, evolve=True)
    assert set(found(table)) == {1, 2}


def test_a_column_that_was_dropped_and_added_anew_meanwhile_does_not_take_the_values_of_the_old_one(
    table: hoodoo.Table, between: Between
) -> None:
    between(lambda: other(table).alter([hoodoo.DropColumn("a"), hoodoo.AddColumn("a", pa.int32())], rewrite=True))
    with pytest.raises(hoodoo.ColumnError, match="'a'"):
        table.upsert([row(3)])
    assert set(found(table)) == {1, 2} and found(table)[1]["a"] is None


def test_a_delete_goes_on_whatever_was_dropped_added_or_renamed_meanwhile(
    table: hoodoo.Table, between: Between
) -> None:
    changes = [hoodoo.DropColumn("a"), hoodoo.RenameColumn("b", "bb"), hoodoo.AddColumn("n", pa.int32(), 3)]
    between(lambda: other(table).alter(changes, rewrite=True))
    assert table.delete([{"id": 1}]).deleted in (0, 1)
    assert set(found(table)) == {2}


def test_two_changes_at_once_end_in_both(table: hoodoo.Table, between: Between) -> None:
    between(lambda: other(table).alter.rename_column("b", "bb", rewrite=True))
    table.alter.add_column("n", pa.int32())
    assert other(table).schema.names == ["id", "a", "bb", "s", "n"]
    assert found(table)[1] == {"id": 1, "a": 1, "bb": "b1", "s": {"x": 1, "y": "y1"}, "n": None}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (hoodoo.DropColumn("a"), hoodoo.RenameColumn("a", "n")),
        (hoodoo.AddColumn("n", pa.int32()), hoodoo.RenameColumn("a", "n")),
        (hoodoo.AddColumn("n", pa.int32()), hoodoo.AddColumn("n", pa.int32())),
    ],
)
def test_a_change_whose_column_is_gone_or_whose_name_is_taken_by_then_is_refused(
    table: hoodoo.Table, between: Between, first: Any, second: Any
) -> None:
    between(lambda: other(table).alter([first], rewrite=True))
    with pytest.raises(hoodoo.SchemaError):
        table.alter([second], rewrite=True)
    assert len(table.inspect.schemas()) == 2


# ---------------------------------------------------------------- two batches that change the columns


def test_a_second_writer_that_brings_the_same_column_finds_nothing_to_do(table: hoodoo.Table, between: Between) -> None:
    between(lambda: other(table).upsert(pa_rows([row(3, n=3)]), evolve=True))
    table.upsert(pa_rows([row(4, n=4)]), evolve=True)
    assert {key: one["n"] for key, one in found(table).items()} == {1: None, 2: None, 3: 3, 4: 4}
    assert len(table.inspect.schemas()) == 2


def test_a_second_writer_that_brings_the_same_column_of_a_wider_type_widens_it(
    table: hoodoo.Table, between: Between
) -> None:
    between(lambda: other(table).upsert(pa_rows([row(3, n=3)], n=pa.int32()), evolve=True))
    table.upsert(pa_rows([row(4, n=2**40)], n=pa.int64()), evolve=True)
    assert {key: one["n"] for key, one in found(table).items()} == {1: None, 2: None, 3: 3, 4: 2**40}
    assert table.schema.field("n").type == pa.int64()


def test_a_second_writer_whose_column_is_the_narrower_one_is_cast(table: hoodoo.Table, between: Between) -> None:
    """Its column kept the id that it had guessed for it, which was right by chance alone."""
    between(lambda: other(table).upsert(pa_rows([row(3, n=2**40)], n=pa.int64()), evolve=True))
    table.upsert(pa_rows([row(4, n=4)], n=pa.int32()), evolve=True)
    assert {key: one["n"] for key, one in found(table).items()} == {1: None, 2: None, 3: 2**40, 4: 4}


def test_a_second_writer_that_brings_the_same_name_with_another_type_is_refused(
    table: hoodoo.Table, between: Between
) -> None:
    between(lambda: other(table).upsert(pa_rows([row(3, n="text")], n=pa.string()), evolve=True))
    with pytest.raises(hoodoo.ColumnError, match="'n'"):
        table.upsert(pa_rows([row(4, n=True)], n=pa.bool_()), evolve=True)
    assert set(found(table)) == {1, 2, 3}


@pytest.mark.parametrize("wide", [False, True])
def test_new_columns_of_two_writers_that_guess_the_same_id_are_not_mixed_up(
    table: hoodoo.Table, between: Between, wide: bool
) -> None:
    """A batch's new column `n`, of a narrower type than another writer gave it meanwhile, kept the id that it had
    guessed, which the table had given to `m` by then: its values went there.
    """
    kind = pa.int64() if wide else pa.int32()
    theirs = pa_rows([row(3, m=30, n=3)], m=pa.int32(), n=kind)
    between(lambda: other(table).upsert(theirs, evolve=True))
    table.upsert(pa_rows([row(4, n=4)], n=pa.int32()), evolve=True)
    assert {key: (one["m"], one["n"]) for key, one in found(table).items()} == {
        1: (None, None),
        2: (None, None),
        3: (30, 3),
        4: (None, 4),
    }


def test_a_new_field_of_a_batch_is_found_by_its_name_whatever_id_it_was_given_meanwhile(
    table: hoodoo.Table, between: Between
) -> None:
    """The batch's new field had the id that the table gave to another column meanwhile, and became null."""
    struct = pa.struct([*STRUCT, pa.field("z", pa.int32())])
    theirs = pa_rows([row(3, m=30, s={"x": 3, "y": "y3", "z": 33})], m=pa.int32(), s=struct)
    between(lambda: other(table).upsert(theirs, evolve=True))
    table.upsert(pa_rows([row(4, s={"x": 4, "y": "y4", "z": 44})], s=struct), evolve=True)
    assert found(table)[3]["s"]["z"] == 33
    assert found(table)[4] == row(4, m=None, s={"x": 4, "y": "y4", "z": 44})


def test_a_batch_that_evolves_goes_on_where_its_base_is_renamed_meanwhile(
    table: hoodoo.Table, between: Between
) -> None:
    between(lambda: other(table).alter.rename_column("b", "bb", rewrite=True))
    table.upsert(pa_rows([row(4, n=4)], n=pa.int32()), evolve=True)
    assert found(table)[4] == {"id": 4, "a": 4, "bb": "b4", "s": {"x": 4, "y": "y4"}, "n": 4}


def test_a_transaction_of_a_batch_that_changed_the_columns_is_written_once(table: hoodoo.Table) -> None:
    """A change of class logs is a slot of its own, without the transaction: a retry repeats the write alone."""
    table.upsert([row(1, a=5)])
    batch = pa_rows([row(3, a=2**40)], a=pa.int64())
    table.upsert(batch, evolve=True, transaction=("app", 1))
    seq = table.cursor.seq
    again = table.upsert(batch, evolve=True, transaction=("app", 1))
    assert again.cursor.seq == seq == table.cursor.seq or again.instant == ""
    assert found(table)[3]["a"] == 2**40 and found(table)[1]["a"] == 5


def pa_rows(rows: list[dict[str, Any]], **kinds: pa.DataType) -> pa.Table:
    """Rows with the types of the table, but for columns in `kinds`."""
    fields = {field.name: field.type for field in SCHEMA} | {"n": pa.int32()} | kinds
    names = [name for name in fields if name in rows[0]]
    return pa.Table.from_pylist(rows, schema=pa.schema([(name, fields[name]) for name in names]))


# ---------------------------------------------------------------- S1 to S6


def test_s1_a_change_whose_instant_is_smaller_than_that_of_a_commit_before_it_begins_again(
    table: hoodoo.Table, between: Between
) -> None:
    between(lambda: other(table).upsert([row(3)]))
    done = table.alter.add_column("n", pa.int32())
    before = table.handle.history.slot(done.cursor.seq - 1)
    assert before.operation != ALTER and before.instant < done.instant


def test_s2_a_writer_that_finds_a_change_takes_a_larger_instant_and_says_the_new_columns(
    table: hoodoo.Table, between: Between
) -> None:
    between(lambda: other(table).alter.add_column("n", pa.int32()))
    done = table.upsert([row(3)])
    change = next(s for s in table.handle.history.slots(0, done.cursor.seq) if s.operation == ALTER)
    assert change.seq < done.cursor.seq and change.instant < done.instant


@pytest.mark.parametrize("service", ["cluster", "logs", "clean"])
def test_s2_a_service_that_finds_a_change_does_not_bring_the_old_columns_back(
    tmp_path: Path, between: Between, service: str
) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", compact_after_logs=None, clean_every=None)
    table.upsert([row(1), row(2), row(3)])
    for key in (1, 2, 3):
        table.upsert([row(1), row(key)])
    if service == "clean":
        table.compact()
        table.upsert([row(1)])
    between(lambda: other(table).alter.add_column("n", pa.int32(), default=1))
    if service == "cluster":
        table.maintenance.cluster(sort_by=["a"])
    elif service == "logs":
        compact_logs(table.handle.context(), lambda view: behind(view, 2))
    else:
        table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert other(table).schema.names == [*SCHEMA.names, "n"]
    assert found(table) == {key: row(key, n=None) for key in (1, 2, 3)}
    head = hoodoo.open(table.path).schema
    assert head.names == [*SCHEMA.names, "n"]


@pytest.mark.parametrize(
    "change",
    [hoodoo.AddColumn("n", pa.int32()), hoodoo.DropColumn("a"), hoodoo.MoveColumn("b", first=True)],
)
def test_s3_a_plan_older_than_a_free_change_makes_the_same_files_as_before_it(tmp_path: Path, change: Any) -> None:
    made = []
    for name in ("plain", "changed"):
        table = hoodoo.create(tmp_path / name, SCHEMA, key="id", compact_after_logs=None, clean_every=None)
        table.upsert([row(1), row(2)])
        table.upsert([row(2, a=5)])
        plan = plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs)
        if name == "changed":
            table.alter([change])
        assert plan is not None
        plans.run_compaction_plan(other(table).handle.context(), plan)
        [group] = table.handle.history.head().groups()
        assert group.base is not None and group.base.file.schema == 0
        import pyarrow.parquet as pq

        made.append(pq.read_table(Path(table.path) / group.base.file.path).select(SCHEMA.names))
        want = {key: {n: v for n, v in one.items()} for key, one in {1: row(1), 2: row(2, a=5)}.items()}
        for one in want.values():
            if name == "changed" and isinstance(change, hoodoo.AddColumn):
                one["n"] = None
            if name == "changed" and isinstance(change, hoodoo.DropColumn):
                del one["a"]
        assert found(table) == want
        assert table.verify().problems == []
    assert made[0] == made[1]


@pytest.mark.parametrize(
    "change", [hoodoo.RenameColumn("a", "aa"), hoodoo.WidenColumn("a", pa.int64()), hoodoo.AddColumn("s.z", pa.int32())]
)
def test_s4_a_change_that_rewrites_runs_open_plans_first(tmp_path: Path, change: Any) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", compact_after_logs=None, clean_every=None)
    table.upsert([row(1), row(2)])
    table.upsert([row(2, a=5)])
    assert plans.commit_compaction_plan(table.handle.context(), plans.plan_groups_with_logs) is not None
    table.upsert([row(1, a=6)])
    seq = table.cursor.seq
    done = table.alter([change], rewrite=True)
    assert not table.handle.history.head().plans
    compaction = table.handle.history.slot(seq + 1)
    assert compaction.compacts and done.cursor.seq == seq + 2
    name = "aa" if isinstance(change, hoodoo.RenameColumn) else "a"
    assert {key: one[name] for key, one in found(table).items()} == {1: 6, 2: 5}


def test_s4_a_plan_that_is_made_while_a_change_rewrites_is_run_before_it(tmp_path: Path, between: Between) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", compact_after_logs=None, clean_every=None)
    table.upsert([row(1), row(2)])
    table.upsert([row(2, a=5)])
    between(lambda: plans.commit_compaction_plan(other(table).handle.context(), plans.plan_groups_with_logs))
    table.alter.rename_column("a", "aa", rewrite=True)
    assert not table.handle.history.head().plans
    assert {key: one["aa"] for key, one in found(table).items()} == {1: 1, 2: 5}


def test_s5_logs_that_came_while_a_change_merged_others_are_merged_too(tmp_path: Path, between: Between) -> None:
    schema = pa.schema([*SCHEMA, pa.field("p", pa.string())])
    table = hoodoo.create(tmp_path / "t", schema, key="id", partition_by="p", compact_after_logs=None, clean_every=None)
    table.upsert([row(1, p="x"), row(2, p="y")])
    table.upsert([row(1, p="x", a=5)])
    between(lambda: other(table).upsert([row(2, p="y", a=6)]))
    done = table.alter.widen_column("a", pa.int64())
    assert done.groups == 2 and not any(group.logs for group in table.handle.history.head().groups())
    assert {key: one["a"] for key, one in found(table).items()} == {1: 5, 2: 6}


def test_s6_a_name_that_comes_back_costs_only_the_groups_that_still_hold_the_old_column(tmp_path: Path) -> None:
    schema = pa.schema([*SCHEMA, pa.field("p", pa.string())])
    table = hoodoo.create(tmp_path / "t", schema, key="id", partition_by="p", type="copy_on_write", clean_every=None)
    table.upsert([row(1, p="x"), row(2, p="y")])
    table.alter.drop_column("a")
    one = row(1, p="x")
    del one["a"]
    table.upsert([one])  # its group has no `a` any more
    with pytest.raises(hoodoo.RewriteNeeded) as needed:
        table.alter.add_column("a", pa.string())
    assert needed.value.details["groups"] == 1 and needed.value.details["rows"] == 1
    assert table.alter.add_column("a", pa.string(), rewrite=True).groups == 1
    assert {key: one["a"] for key, one in found(table).items()} == {1: None, 2: None}


@pytest.mark.deep  # it waits between its tries
def test_a_change_that_writers_always_overtake_says_so_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id", compact_after_logs=None, clean_every=None, max_retries=4)
    table.upsert([row(1)])
    complete, busy, count = Transaction.complete, [False], [0]

    def overtaken(self: Transaction, draft: Any) -> Any:
        if not busy[0]:
            busy[0] = True
            count[0] += 1
            other(table).upsert([row(1, a=count[0])])
            busy[0] = False
        return complete(self, draft)

    monkeypatch.setattr(Transaction, "complete", overtaken)
    with pytest.raises(hoodoo.CommitConflict):
        table.alter.rename_column("a", "aa", rewrite=True)
    monkeypatch.setattr(Transaction, "complete", complete)
    assert table.schema.names == SCHEMA.names and table.verify().problems == []
