"""Who exports the table to other formats, beside everybody else."""

from __future__ import annotations

from scheduler import Actor
from world import World, role

from hoodoo.errors import StoreUnavailable, TryAgainError
from hoodoo.exports.request import HISTORIES, NEWEST
from hoodoo.table import Table
from hoodoo.timeline.properties.table_options import EXPORT_MODES, READ_OPTIMIZED

_FORMATS = ({"delta": True, "iceberg": True}, {"delta": True}, {"iceberg": True})


@role
def exporter(world: World, actor: Actor, table: Table) -> None:
    """Exports to either format or both, now and then in the other mode, or each slot."""
    mode = actor.rng.choice(EXPORT_MODES)
    for _ in range(actor.rng.randint(2, 5)):
        world.scheduler.sleep(actor, actor.rng.random() * 0.1)
        formats = actor.rng.choice(_FORMATS)
        if actor.rng.random() < 0.2:
            mode = actor.rng.choice(EXPORT_MODES)
        history = actor.rng.choice(HISTORIES) if mode == READ_OPTIMIZED else NEWEST
        world.scheduler.note(actor, f"exports {' and '.join(formats)}, {mode}, {history}")
        try:
            done = table.export(**formats, mode=mode, history=history)
        except (StoreUnavailable, TryAgainError) as problem:
            world.scheduler.note(actor, f"not exported: {type(problem).__name__} {problem}")
        else:
            world.scheduler.note(actor, f"exported {done}")
