"""What a table is at one moment, as one value: its configuration, the view of its head, and what other engines did
since.

Made by one look at the store (`look`): Hudi's timeline, the slots, the properties. Whoever needs state gets this value
handed on; nobody else asks the store for any of the three.
"""

from __future__ import annotations

from dataclasses import dataclass

from hoodoo.format.names import instant_of_ms
from hoodoo.timeline.environment import Deferred
from hoodoo.timeline.history import History, replaced
from hoodoo.timeline.hudi import foreign
from hoodoo.timeline.hudi.foreign import CompletedInstant
from hoodoo.timeline.instant import Instant
from hoodoo.timeline.layout import TIMELINE
from hoodoo.timeline.properties import config as configuration
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import View


@dataclass(frozen=True)
class TableState:
    """config: properties, and what slots changed of them. foreign: instants that another engine completed since the
    head and that no slot describes, oldest first. names: the files of Hudi's timeline that may matter to a write: those
    of instants begun since a day before the head.
    """

    config: TableConfig
    view: View
    foreign: tuple[CompletedInstant, ...]
    names: frozenset[str]
    pleas: tuple[str, ...] = ()  # of writers that ask for a turn (plea.py)
    backup_restores: int = 0  # times that the table was put back from a backup under this process

    def has(self, instant: Instant) -> bool:
        """Tell whether Hudi's timeline has the file of `instant`."""
        return instant.key.removeprefix(TIMELINE) in self.names


def look(history: History, known: TableState | None = None, properties: bool = True) -> TableState:
    """The state of the table now: a list of Hudi's timeline, a look for new slots, one read of the properties, asked
    for together.

    known: what the caller saw last. properties: a reader needs none anew, as slots say what changed. Raises
    TableReplaced where the store holds another table than the known one, TableNotFound, UnsupportedTable, CorruptTable.
    """
    backup_restores = history.backup_restores  # before the view: noticed too early it costs a retry, too late a commit
    first, before = not history.known(), history.known_head()
    kept = known.config if known and not properties and known.backup_restores == backup_restores else None
    names = Deferred(lambda: foreign.names_since(history.store, before))
    head = Deferred(lambda: before if first else history.head())
    said = Deferred(lambda: kept or configuration.load(history.store))
    history.together([names, head, said])
    view = head.result
    since = foreign.completed_in(names.result, instant_of_ms(view.completed_at))
    if since:  # slots once more, after the list: what our writers published meanwhile has a slot
        view = history.head()
        since = foreign.completed_in(names.result, instant_of_ms(view.completed_at))
    config = configuration.load(history.store) if kept and history.backup_restores != backup_restores else said.result
    if known and known.config.table_id not in ("", config.table_id):
        raise replaced(history.store)  # its slots would go on from ours, which nobody else has
    config = config.under(view.settings, view.schemas)
    return TableState(config, view, tuple(since), frozenset(names.result), history.pleas, backup_restores)
