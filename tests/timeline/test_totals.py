"""The running totals of a view are what a recount of its file groups finds, whatever slots came."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from slots import make_slot

from hoodoo.compactor.clustering.units import plan_packing
from hoodoo.timeline.slots.slot import BASE, COMPLETED, LOG, PLANNED, ROLLED_BACK, DataFile, Slot
from hoodoo.timeline.views.file_group import FileGroup
from hoodoo.timeline.views.totals import FileTotals, count
from hoodoo.timeline.views.view import View, apply

PARTITIONS = ("", "p=a", "p=b")


def file_of(rng: random.Random, partition: str, file_id: str, kind: str, seq: int) -> DataFile:
    name = f"{file_id}_{kind}_{seq}"
    size = rng.choice((0, 1, 2, 3, 4, 7, 8, 100, 1 << 20))
    return DataFile(f"{partition}/{name}".lstrip("/"), partition, file_id, kind, size, "digest", rows=rng.randint(0, 9))


def next_slot(rng: random.Random, view: View) -> Slot:
    """A slot as writers and services make them: inserts, rewrites, appends, replacements, merges, compactions."""
    groups = list(view.groups())
    some = rng.sample(groups, min(len(groups), rng.randint(0, 3)))
    seq, files, replaced, merged, plan_seq = view.seq + 1, [], [], [], 0
    what = rng.choice(("insert", "insert", "rewrite", "append", "append", "append", "replace", "merge", "compact"))
    if what in ("insert", "replace"):
        files = [file_of(rng, rng.choice(PARTITIONS), f"f{seq}-{n}", BASE, seq) for n in range(rng.randint(0, 3))]
    if what == "replace":
        replaced = [(group.partition, group.file_id) for group in some]
    if what in ("rewrite", "compact"):
        files = [file_of(rng, group.partition, group.file_id, BASE, seq) for group in some]
        plan_seq = rng.randint(max(1, seq - 4), seq) if what == "compact" else 0
    if what in ("append", "merge"):
        files = [file_of(rng, group.partition, group.file_id, LOG, seq) for group in some]
        if what == "append" and rng.random() < 0.2:  # of another engine: a group without a base
            files.append(file_of(rng, rng.choice(PARTITIONS), f"l{seq}", LOG, seq))
    if what == "merge":
        merged = [log.file.path for group in some for log in group.logs[: rng.randint(0, 9)]]
    outcome = rng.choice((COMPLETED,) * 8 + (PLANNED, ROLLED_BACK))
    return make_slot(
        seq,
        prev=view.sha,
        instant=f"{seq:017d}",
        action="deltacommit",
        outcome=outcome,
        operation=what.upper(),
        files=tuple(files),
        replaced=tuple(replaced),
        merged=tuple(merged),
        plan_seq=plan_seq,
    )


def undo(view: View, then: View) -> Slot:
    """What another engine took back: the groups as they were stand in the slot."""
    gone = tuple((group.partition, group.file_id) for group in view.groups())
    files = tuple(entry.file for group in then.groups() for entry in group.files())
    return replace(
        next_slot(random.Random(0), view),
        outcome=COMPLETED,
        operation="UNDO",
        replaced=gone,
        files=files,
        position=then.seq,
        published="x",
    )


def require_right(view: View) -> None:
    recounted = count(view.partitions)
    assert view.totals == recounted.together
    assert {name: view.totals_of(name) for name in view.partitions} == recounted.each
    assert view.totals_of("no such partition") == FileTotals()
    groups = list(view.groups())
    bases = [group.base.file.size for group in groups if group.base]
    assert (view.totals.groups, view.totals.bases, view.totals.base_bytes) == (len(groups), len(bases), sum(bases))
    assert view.totals.logs == sum(len(group.logs) for group in groups)
    assert view.totals.log_bytes == sum(log.file.size for group in groups for log in group.logs)
    assert view.totals.behind == sum(1 for group in groups if group.logs)
    assert view.totals.logs_max == max((len(group.logs) for group in groups), default=0)
    assert view.totals.bytes_behind == sum(group.base.file.size for group in groups if group.base and group.logs)
    for logs in (1, 2, 3):
        assert list(view.groups_behind(logs)) == [group for group in groups if len(group.logs) >= logs]
    for size in (0, 1, 2, 3, 4, 5, 8, 9, 101, 1 << 20, 1 << 21):
        assert view.bases_below(size) == sum(base < size for base in bases)


@pytest.mark.parametrize("seed", range(40))
def test_totals_are_what_a_recount_finds_at_each_step_of_a_random_history(seed: int) -> None:
    rng = random.Random(seed)
    view = View()
    assert view.totals == FileTotals()
    seen = [view]
    for _ in range(60):
        slot = undo(view, rng.choice(seen[-5:])) if rng.random() < 0.03 else next_slot(rng, view)
        view = apply(view, slot, f"sha {slot.seq}")
        assert view._counted, "kept, not counted anew"
        require_right(view)
        seen.append(view)


def test_a_view_that_no_slot_made_is_counted_when_it_is_asked_and_kept_from_then_on() -> None:
    rng, view = random.Random(1), View()
    for _ in range(30):
        view = apply(view, next_slot(rng, view), "sha")
    opened = replace(view, _counted=None)  # as from a checkpoint
    assert opened._counted is None
    later = apply(opened, next_slot(rng, opened), "sha")
    assert later._counted is None, "opening a table counts nothing"
    require_right(later)
    require_right(apply(later, next_slot(rng, later), "sha"))


def test_a_part_of_a_view_has_totals_of_its_own() -> None:
    """Copied with the view they would be those of the whole table."""
    rng, view = random.Random(2), View()
    for _ in range(30):
        view = apply(view, next_slot(rng, view), "sha")
    assert view.totals.groups
    part = replace(view, partitions={"p=a": view.partitions["p=a"]})
    require_right(part)
    require_right(replace(view, partitions={}))


def test_what_follows_a_commit_does_not_look_at_partitions_that_it_did_not_touch() -> None:
    """Compaction, packing and lag asked every file group of the table after each commit."""
    target, looked = 1 << 20, 0

    class Watched(dict[str, FileGroup]):
        def values(self) -> object:  # type: ignore[override]
            nonlocal looked
            looked += 1
            return super().values()

    view = View()
    for number in range(50):
        files = tuple(file_of(random.Random(n), f"p={number}", f"f{n}", BASE, number) for n in range(2))
        large = tuple(replace(file, size=target) for file in files)
        view = apply(view, replace(next_slot(random.Random(0), view), outcome=COMPLETED, files=large, replaced=()), "s")
    log = file_of(random.Random(0), "p=7", "f0", LOG, 99)
    view = apply(view, replace(next_slot(random.Random(0), view), outcome=COMPLETED, files=(log,), replaced=()), "s")
    watched = {name: Watched(groups) for name, groups in view.partitions.items()}
    counted = view._totals()
    view = replace(view, partitions=watched, _counted=replace(counted, partitions=watched))
    assert [group.partition for group in view.groups_behind()] == ["p=7"] and looked == 1
    assert plan_packing(view, target) == [] and view.bases_below(target // 2) == 0 and view.totals.logs_max == 1
    assert looked == 1
