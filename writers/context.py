"""Context of a write: store, timeline and index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hoodoo.engine.protocol import Engine
from hoodoo.index.key_index import KeyIndex
from hoodoo.storage.store import Store
from hoodoo.timeline.state import TableState
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views.view import View

if TYPE_CHECKING:
    from hoodoo.timeline.columns.alterations import Alteration
    from hoodoo.writers.batches.evolution import ColumnEvolution


@dataclass(frozen=True)
class Context:
    """Context of a write: store, timeline and index.

    Attributes:
        store: The store of the table.
        timeline: The timeline of the table.
        index: The index of the table.
        engine: The engine that runs tasks.
        run_plans: Function that runs the open compaction plans of a view.
        alter: Function that changes the table's columns if the change requires rewriting logs.
        evolution: Column changes that a batch may cause, or None.
        begun: The table state for the first attempt, if it is already loaded.
        head: The slot after which no other writer may have written rows, or None for no such condition.
    """

    store: Store
    timeline: TableTimeline
    index: KeyIndex
    engine: Engine
    run_plans: Callable[[View], None]
    alter: Callable[[Sequence[Alteration]], None]
    evolution: ColumnEvolution | None = None
    begun: TableState | None = None
    head: int | None = None

    def on_head(self, slot: int | None) -> Context:
        return self if slot is None else replace(self, head=slot)
