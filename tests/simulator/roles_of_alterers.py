"""Who changes the table's columns: calls the value otherwise, adds a column, widens it, drops it, adds it anew."""

from __future__ import annotations

import pyarrow as pa
from scheduler import Actor
from table_columns import VALUES, value_name
from world import World, role

from hoodoo.errors import CommitConflict, CommitUnknown, Fenced, RewriteNeeded, SchemaError, StoreUnavailable
from hoodoo.table import Table
from hoodoo.timeline.columns.alterations import AddColumn, Alteration, DropColumn, RenameColumn, WidenColumn


@role
def alterer(world: World, actor: Actor, table: Table) -> None:
    """One change after the other, by what it knows of the table; a change that somebody else made is refused."""
    for _ in range(actor.rng.randint(1, 4)):
        wanted = _some_change(actor, table)
        world.scheduler.note(actor, f"alter {wanted}")
        try:
            done = table.alter([wanted], rewrite=actor.rng.random() < 0.9)
        except (SchemaError, RewriteNeeded, CommitConflict, CommitUnknown, Fenced, StoreUnavailable) as problem:
            world.scheduler.note(actor, f"not altered: {type(problem).__name__} {problem}")
        else:
            slot = world.oracle.slots[done.cursor.seq]
            if done.instant and (slot["instant"] != done.instant or "columns" not in slot):
                world.oracle.wrong("I7 acknowledgement", f"{wanted}: slot {slot['seq']} does not say it")
        world.scheduler.sleep(actor, actor.rng.random() * 0.1)


def _some_change(actor: Actor, table: Table) -> Alteration:
    value, kinds = value_name(table.schema.names), {field.name: field.type for field in table.schema}
    rename = RenameColumn(value, actor.rng.choice([name for name in VALUES if name != value]))
    if "n" not in kinds:
        return actor.rng.choice((rename, AddColumn("n", pa.int32(), default=None)))
    choices: list[Alteration] = [rename, DropColumn("n")]
    return actor.rng.choice([*choices, WidenColumn("n", pa.int64())] if kinds["n"] == pa.int32() else choices)
