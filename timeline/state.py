"""State of a table at one moment.

`read_table_state` is the only function that reads this state from the store. All other code receives it as a value.
"""

from __future__ import annotations

from dataclasses import dataclass

from hoodoo.format.names import instant_of_ms
from hoodoo.timeline.environment import ResultHolder
from hoodoo.timeline.history import History, replaced
from hoodoo.timeline.hudi import external_history
from hoodoo.timeline.hudi.external_history import CompletedInstant
from hoodoo.timeline.instant import Instant
from hoodoo.timeline.layout import TIMELINE
from hoodoo.timeline.properties import hoodie_properties
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import View


@dataclass(frozen=True)
class TableState:
    """State of a table: configuration, commits and files.

    Attributes:
        config: The properties, including changes by slots.
        view: The view of the newest slot.
        external: The instants that other engines completed after the newest slot, oldest first.
        names: The names of files in Hudi's timeline that may affect a write, because their instants began at most a day
            before the newest slot.
    """

    config: TableConfig
    view: View
    external: tuple[CompletedInstant, ...]
    names: frozenset[str]
    turn_requests: tuple[str, ...] = ()  # keys of turn requests (turn_request.py)
    backup_restores: int = 0  # number of restores from a backup that this process has noticed

    def has(self, instant: Instant) -> bool:
        return instant.key.removeprefix(TIMELINE) in self.names


def read_table_state(history: History, known: TableState | None = None, properties: bool = True) -> TableState:
    """Read the current state of a table.

    Sends the requests for Hudi's timeline, the slots and the properties concurrently.

    Args:
        history: The history of the table.
        known: The last state that the caller has read, or None.
        properties: False reuses the properties of `known`, which is sufficient for readers, because slots record
            changes.

    Raises:
        TableReplaced: The store contains a different table than `known`.
        TableNotFound: The table does not exist.
        UnsupportedTable: The table requires an unsupported feature.
        CorruptTable: The properties or a slot are damaged.
    """
    backup_restores = history.backup_restores  # read before the view, because an outdated value only costs a retry
    first, before = not history.has_loaded_state(), history.known_head()
    kept = known.config if known and not properties and known.backup_restores == backup_restores else None
    names = ResultHolder(lambda: external_history.names_since(history.store, before))
    head = ResultHolder(lambda: before if first else history.head())
    loaded = ResultHolder(lambda: kept or hoodie_properties.load(history.store))
    history.together([names, head, loaded])
    view = head.result
    since = external_history.list_completed_commits(names.result, instant_of_ms(view.completed_at))
    if since:  # look for slots again, because hoodoo's writers may have published these instants in the meantime
        view = history.head()
        since = external_history.list_completed_commits(names.result, instant_of_ms(view.completed_at))
    config = loaded.result
    if kept and history.backup_restores != backup_restores:
        config = hoodie_properties.load(history.store)
    if known and known.config.table_id not in ("", config.table_id):
        raise replaced(history.store)  # new slots would continue a history that the store no longer has
    config = hoodie_properties.apply_settings(config, view.settings, view.schemas)
    return TableState(config, view, tuple(since), frozenset(names.result), history.turn_requests, backup_restores)
