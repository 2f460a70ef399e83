"""What a simulation consists of, and how an actor lives: it opens the table and plays its role.

An actor reports to the oracle what it meant and what it was told. Errors that are part of the interface are answered as
a user would; any other error is a violation.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from oracle import Oracle
from scheduler import Actor, Scheduler
from shared_store import Handle, Objects

from hoodoo.errors import (
    CommitUnknown,
    SnapshotExpired,
    StoreUnavailable,
)
from hoodoo.table import Table

if TYPE_CHECKING:
    from exported_views import ExportedViews
    from metadata_list import MetadataList

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
TRIES = 30


@dataclass
class World:
    """What a simulation consists of. `weights`: how often each operation is chosen by writers."""

    scheduler: Scheduler
    objects: Objects
    oracle: Oracle
    rng: random.Random
    keys: str
    weights: dict[str, int]
    most_rows: int
    lists_by_prefix: bool
    page_size: int
    serial: int = 0
    metadata: MetadataList | None = None
    exports: ExportedViews | None = None

    def table_of(self, actor: Actor) -> Table:
        handle = Handle(self.scheduler, self.objects, actor, self.lists_by_prefix, self.page_size)
        for _ in range(TRIES):
            try:
                return Table(handle, self.scheduler.environment(actor))
            except StoreUnavailable:
                self.scheduler.sleep(actor, 0.05)
        raise StoreUnavailable("the table could not be opened")

    def next_value(self) -> int:
        self.serial += 1
        return self.serial


Role = Callable[[World, Actor, Table], None]
ROLES: dict[str, Role] = {}


def role(run: Role) -> Role:
    ROLES[run.__name__] = run
    return run


def act(world: World, actor: Actor, name: str) -> None:
    """The life of one actor: open the table, do its part. An error that no role expects is a violation."""
    try:
        table = world.table_of(actor)
        ROLES[name](world, actor, table)
    except (StoreUnavailable, CommitUnknown):
        return  # it gives up, as a process whose store is away does
    except Exception as problem:
        places = [
            f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
            for frame in traceback.extract_tb(problem.__traceback__)
        ]
        world.oracle.wrong("errors", f"{actor.name} got {type(problem).__name__}: {problem} ({' '.join(places[-8:])})")


def may_be_expired(world: World, seq: int, problem: SnapshotExpired) -> None:
    if seq >= world.oracle.min_readable or seq in world.oracle.savepoints.values():
        world.oracle.wrong(
            "I6 time travel",
            f"slot {seq} was refused, although snapshots from {world.oracle.min_readable} on are readable: {problem}",
        )
