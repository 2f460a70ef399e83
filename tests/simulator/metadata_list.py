"""Hudi's metadata table in a simulation: Hudi makes and compacts it, hoodoo appends to it, and after each step its
readers must find there every file that they need, or not use it.
"""

from __future__ import annotations

from typing import Any

import metadata_tables
from memory_store import MemoryStore
from oracle import Oracle
from scheduler import Actor
from shared_store import Objects
from world import World, role

from hoodoo.format.names import instant_of_ms
from hoodoo.table import Table
from hoodoo.timeline.hudi.publish import instants
from hoodoo.timeline.instant import SAVEPOINT, State
from hoodoo.timeline.layout import METADATA_TABLE, PROPERTIES, TIMELINE

_OF_LISTS = (METADATA_TABLE, PROPERTIES, TIMELINE)


class HudisStore(MemoryStore):
    """The shared objects as Hudi's turn finds them: nobody else does anything meanwhile."""

    def __init__(self, objects: Objects) -> None:
        super().__init__()
        self.objects, self.data = objects, objects.data

    def put(self, key: str, data: Any) -> None:
        self.objects.put(key, bytes(data))

    def delete(self, key: str) -> None:
        self.objects.delete(key)


class MetadataList:
    """Follows what the metadata table lists; `check` holds it against what is published."""

    def __init__(self, objects: Objects, oracle: Oracle) -> None:
        self.store, self.oracle = HudisStore(objects), oracle
        self.counted = 0  # the slot up to which Hudi's statistics know the files
        self.changed = True
        oracle.may_change += (PROPERTIES, METADATA_TABLE)
        told = objects.watch

        def watch(what: str, key: str, before: bytes | None) -> None:
            self.changed = self.changed or key.startswith(_OF_LISTS)
            told(what, key, before)

        objects.watch = watch

    def hudis_turn(self, now_ms: int) -> bool:
        """Hudi compacts its metadata table, or makes it anew where it is out of use; statistics are in use again. It
        does neither while an instant is pending, or not published.
        """
        found = instants(self.store)
        completed = {one.time for one in found if one.state is State.COMPLETED}
        pending = any(one.time not in completed for one in found if one.action != SAVEPOINT)
        if pending or self.oracle.shown < self.oracle.head:
            return False
        in_use = metadata_tables.listed(self.store) is not None
        old = [name for name in self.store.names(metadata_tables.FILES) if ".log." in name]
        metadata_tables.make(self.store, now_ms, instant_of_ms(now_ms) if in_use else metadata_tables.FIRST)
        for name in old:
            self.store.delete(metadata_tables.FILES + name)
        self.counted = self.oracle.shown
        return True

    def check(self) -> None:
        """Raise no error: what is wrong the oracle is told."""
        if not self.changed or self.oracle.violation:
            return
        self.changed = False
        listed = metadata_tables.listed(self.store)
        if listed is None:
            return
        need = {path for group in self.oracle.groups[self.oracle.shown].values() for path in group.paths()}
        if missing := sorted(need - listed.keys()):
            self.oracle.wrong("I13 Hudi's view", f"{missing[0]} is published, and the metadata table does not list it")
        later = [
            slot["seq"] for slot in self.oracle.slots[self.counted + 1 : self.oracle.shown + 1] if slot.get("files")
        ]
        if later and "column_stats" in metadata_tables.in_use(self.store):
            self.oracle.wrong("I13 Hudi's view", f"statistics are in use that know nothing of slot {later[0]}")


@role
def lister(world: World, actor: Actor, table: Table) -> None:
    """Apache Hudi, which compacts its metadata table or makes it anew between the writes of others."""
    assert world.metadata
    for _ in range(actor.rng.randint(2, 5)):
        world.scheduler.sleep(actor, actor.rng.random() * 0.1)
        done = world.metadata.hudis_turn(world.scheduler.now)
        world.scheduler.note(actor, f"Hudi's turn: {done}")
