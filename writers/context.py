"""What an operation works with: the parts of a table, and the services that it may call."""

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
    from hoodoo.writers.batches.evolution import Evolution


@dataclass(frozen=True)
class Context:
    """What an operation works with. run_plans: runs the open compaction plans of some file groups; alter: changes the
    table's columns where that rewrites logs (services, handed down by the facade). evolution: of a batch that may
    change the table's columns. begun: what the first attempt goes on from, where the table was looked at to prepare it.
    head: the slot since which nobody may have written a row; None: that does not matter.
    """

    store: Store
    timeline: TableTimeline
    index: KeyIndex
    engine: Engine
    run_plans: Callable[[View], None]
    alter: Callable[[Sequence[Alteration]], None]
    evolution: Evolution | None = None
    begun: TableState | None = None
    head: int | None = None

    def on_head(self, slot: int | None) -> Context:
        """The same for a write that goes on only if nobody wrote a row since `slot`; None: that does not matter."""
        return self if slot is None else replace(self, head=slot)
