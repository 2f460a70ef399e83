"""Power fails at any system call, and any subset of what was not synced survives: acknowledged commits are there, whole
and in order (T2e).
"""

from __future__ import annotations

import hashlib
import types
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from figures import record
from memory_store import MemoryStore
from power import Disk
from scenario import ACTIONS, Clock, Rows, contents, opened, require_recovery, rows

import hoodoo.engine.local
import hoodoo.storage.local
from hoodoo.storage.local import LocalStore
from hoodoo.table import Table
from hoodoo.timeline import create_table, layout
from hoodoo.timeline.environment import Environment
from hoodoo.timeline.properties import hoodie_properties, table_options
from hoodoo.timeline.slots.slot import Slot, decode_commit_file
from hoodoo.timeline.views.view import View, apply

from scenario import SCHEMA  # isort: skip

Step = Callable[[Table], Any]
STEPS: dict[str, Step] = {
    "upsert": ACTIONS["upsert"],
    "overwrite": ACTIONS["insert_overwrite"],
    "compact": ACTIONS["compact"],
    "clean": ACTIONS["clean"],
    "savepoint": ACTIONS["savepoint"],
    "update": lambda table: table.upsert(rows(("a", "p", 20), ("c", "q", 20))),
}


class Cut:
    """Looks at every state that a power cut may leave, at every call, while a workload runs."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.acknowledged = 1  # slots
        self.allowed: list[Rows] = []
        self.states, self.recovered, self.points = 0, 0, 0
        self._known: dict[bytes, tuple[View, dict[str, tuple[int, str]]]] = {}
        self._seen: set[bytes] = set()

    def look(self) -> None:
        self.points += 1
        for left in self.disk.states():
            self.states += 1
            head = self._head(left)
            print_ = hashlib.blake2b(
                repr(sorted((key, len(data)) for key, data in left.items())).encode(), digest_size=16
            ).digest()
            if print_ not in self._seen:
                self._seen.add(print_)
                self._files(head, left)
                if len(self._seen) % 40 == 1:
                    self.recovered += 1
                    require_recovery(MemoryStore(left, 0), Clock(), self.allowed, "upsert", "after a power cut")

    def _head(self, left: dict[str, bytes]) -> View:
        """The view of the slots that are left, which have no gap and hold all that was acknowledged."""
        view, found = View(), sorted(key for key in left if key.startswith(layout.SLOTS))
        assert [layout.slot_key(n) for n in range(1, len(found) + 1)] == found
        assert len(found) >= self.acknowledged
        assert layout.PROPERTIES in left
        for key in found:
            data = left[key]
            known = self._known.get(data)
            if known is None:
                slot: Slot = decode_commit_file(data, key)
                assert slot.prev == view.sha
                known = self._known[data] = apply(view, slot, hashlib.sha256(data).hexdigest()), {}
            view = known[0]
        return view

    def _files(self, view: View, left: dict[str, bytes]) -> None:
        for group in view.groups():
            for entry in group.files():
                assert len(left.get(entry.file.path, b"")) == entry.file.size, entry.file.path
                assert not entry.file.index or entry.file.index in left


@pytest.mark.parametrize("first", STEPS)
def test_power_may_fail_at_any_moment_of_three_operations(
    fast_folder: Path, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    total: Counter[str] = Counter()
    for second, third in permutations([name for name in STEPS if name != first], 2):
        with monkeypatch.context() as patch:
            path = fast_folder / f"{second}-{third}"
            path.mkdir()
            total += _cut(str(path), (first, second, third), patch)
    record(f"T2e {first} first", **total)
    assert total["states"] > 5_000 and total["recovered"] > 40


def _cut(root: str, workload: tuple[str, ...], patch: pytest.MonkeyPatch) -> Counter[str]:
    disk, clock = Disk(root), Clock()
    patch.setattr(hoodoo.storage.local, "os", disk)
    patch.setattr(hoodoo.engine.local, "os", types.SimpleNamespace(cpu_count=lambda: 1))
    store = LocalStore(root)
    chosen = table_options.validate_new_options(
        {"compact_after_logs": None, "clean_every": None, "retain_commits": 1, "retain_hours": 0}
    )
    create_table.create_table(
        store,
        hoodie_properties.create_properties("t", SCHEMA, ("id",), ("city",), ("ts",), "merge_on_read", chosen),
        Environment(now_ms=clock),
    )
    table = opened(store, clock)
    table.upsert(rows(("a", "p", 1), ("b", "p", 1), ("c", "q", 1)))
    table.upsert(rows(("b", "p", 5)))
    cut = Cut(disk)
    cut.acknowledged, before = table.cursor.seq, contents(table)
    for name in workload:
        cut.allowed = [before, *_after(table, clock, name)]
        with _watched(disk, cut):
            STEPS[name](table)
        cut.acknowledged, before = table.cursor.seq, contents(table)
    cut.allowed = [before]
    cut.look()
    return Counter(workloads=1, points=cut.points, states=cut.states, different=len(cut._seen), recovered=cut.recovered)


def _after(table: Table, clock: Clock, name: str) -> list[Rows]:
    """What the rows are after a step, found out on a copy."""
    copy = MemoryStore({key: table.handle.store.get(key) for key, _ in table.handle.store.list("")})
    done = opened(copy, Clock(clock.ms))
    STEPS[name](done)
    return [contents(done)]


class _watched:
    """While in the block, every call that changes the disk is followed by a look at what a power cut would leave."""

    def __init__(self, disk: Disk, cut: Cut) -> None:
        self.disk, self.cut = disk, cut

    def __enter__(self) -> None:
        for name in ("fsync", "link", "replace", "unlink", "mkdir"):
            setattr(self.disk, name, self._then_look(getattr(type(self.disk), name)))

    def _then_look(self, call: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            self.disk.changed = False
            found = call(self.disk, *args, **kwargs)
            if self.disk.changed:
                self.cut.look()
            return found

        return run

    def __exit__(self, *_: object) -> None:
        for name in ("fsync", "link", "replace", "unlink", "mkdir"):
            delattr(self.disk, name)
