"""Internal handle of an open table.

`Table`, Spark's data source and the command line are built on this module, and tests inspect stored bytes through it.
It is internal: use `hoodoo.Table`, because names in this module may change with any release. It does not check user
arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from hoodoo.errors import (
    LockHeld,
    StoreDenied,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    TableNotFound,
    UnsupportedTable,
)
from hoodoo.readers.cursor import PositionLike, resolve_position
from hoodoo.storage.store import Store
from hoodoo.timeline.environment import SYSTEM, Environment, ResultHolder, in_order
from hoodoo.timeline.history import History
from hoodoo.timeline.hudi import archived_timeline
from hoodoo.timeline.hudi.external_history import (
    CompletedInstant,
    ExternalHistory,
    MergedHistory,
    list_unimported_commits,
)
from hoodoo.timeline.instant import RESTORE
from hoodoo.timeline.layout import PROPERTIES
from hoodoo.timeline.properties import hoodie_properties
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.properties.nesting import require_no_outer_table
from hoodoo.timeline.state import TableState
from hoodoo.timeline.timeline import TableTimeline
from hoodoo.timeline.views.view import View

if TYPE_CHECKING:
    from hoodoo.compactor.status.lag import Lag
    from hoodoo.compactor.worker import ServiceTarget
    from hoodoo.engine.protocol import Engine
    from hoodoo.index import KeyIndex
    from hoodoo.table.results import WriteResult
    from hoodoo.timeline.columns.alterations import Alteration
    from hoodoo.writers.committed import Committed
    from hoodoo.writers.context import Context

_MAY_NOT_WRITE = (LockHeld, StoreDenied, StoreFull, StoreRefused, StoreUnavailable)


def _lag(timeline: TableTimeline, view: View, config: TableConfig) -> Lag:
    """Measure the pending work of table services.

    The import is lazy, because few writers request this.
    """
    from hoodoo.compactor.status import lag

    return lag.measure(timeline, view, config)


class TableSnapshot(NamedTuple):
    """Snapshot of a table's state at one moment.

    Keeping them in one object ensures that threads never mix two states.

    Attributes:
        config: The configuration, with the columns at this position.
        history: hoodoo's slots, followed by commits of other engines until a write adopts them.
        view: The view at this position.
    """

    config: TableConfig
    history: History
    view: View


class TableHandle:
    """Internal handle of an open table.

    It has the store, the environment, the timeline, the index, and `seen`, the newest table state that was read.
    Threads can share a handle.
    """

    def __init__(self, store: Store, environment: Environment = SYSTEM) -> None:
        store.require_private()
        self.store, self.environment = store, environment
        self.timeline = TableTimeline(store, lambda key: self.index.key_hashes(key), environment, self._adopt)
        self._alone = False  # not yet checked that no other table contains this one
        self.seen = self._opened()

    @cached_property
    def index(self) -> KeyIndex:
        from hoodoo.index import index_of

        # a local disk responds faster than a thread starts
        together = self.environment.together if self.store.lists_by_prefix else in_order
        return index_of(self.store, together, shared=True)

    @property
    def config(self) -> TableConfig:
        return self.seen.config

    @property
    def history(self) -> History:
        return self.seen.history

    # ---- looking
    def look(self) -> TableSnapshot:
        """Read the newest state of the table."""
        ours = self.timeline.history
        try:
            state = self.timeline.look(properties=False)
        except TableNotFound:
            if not isinstance(self.seen.history, ExternalHistory):
                raise
            self.seen = seen = self._read_external_table(self.seen.config, self.seen.history)  # not adopted yet
            return seen
        found = state.external and (list_unimported_commits(ours) or state.external)
        self.seen = seen = self._overlaid(state, found) if found else TableSnapshot(state.config, ours, state.view)
        return seen

    def heal(self) -> TableSnapshot:
        """Complete the commits of crashed writers."""
        with suppress(TableNotFound, *_MAY_NOT_WRITE):
            self.timeline.heal()
        return self.look()

    def at(self, position: PositionLike | None) -> TableSnapshot:
        """Return the table state at a position."""
        newest = self.look()
        if position is None:
            return newest
        view = newest.history.view(self.slot_of(newest.history, position))
        return newest._replace(config=newest.config.with_schemas(view.schemas), view=view)

    def slot_of(self, history: History, position: PositionLike, exclusive: bool = False) -> int:
        """Return the commit number at a position.

        Relative times count back from the clock of the table's environment.
        """
        return resolve_position(history, position, exclusive, self.environment.now_ms)

    def require_adopted(self, seen: TableSnapshot, what: str) -> None:
        """Check that all commits of other engines are recorded.

        Args:
            seen: The state of the table.
            what: The last sentence of the error message.
        """
        if seen.history is not self.timeline.history:
            seen.config.require_writable()
            raise UnsupportedTable(f"Another engine wrote to this table. {what}", path=self.store.uri)

    def _opened(self) -> TableSnapshot:
        """Read the table state when the table is opened.

        If this process has write permission, this also publishes commits that crashed writers left unpublished.
        """
        ours = self.timeline.history
        healed, archived = (
            ResultHolder(self.timeline.heal),
            ResultHolder[str | None](lambda: archived_timeline.newest(self.store)),
        )
        try:
            self.timeline.history.together([healed, archived])
            state = healed.result
        except TableNotFound:
            return self._read_external_table(hoodie_properties.load(self.store))
        except _MAY_NOT_WRITE:  # read-only processes leave it to writers
            state, archived.result = self.timeline.look(), None
        found = list_unimported_commits(ours, archived.result) or state.external
        return self._overlaid(state, found) if found else TableSnapshot(state.config, ours, state.view)

    def _read_external_table(self, config: TableConfig, known: ExternalHistory | None = None) -> TableSnapshot:
        """Read a table that another engine created.

        Args:
            config: The configuration of the table.
            known: Hudi's timeline as this process last read it. None (default): it has not been read yet.
        """
        theirs = known or self._history_of_hudi(config)
        view = theirs.head()
        if config.is_timeline_v1 and not (now := hoodie_properties.load(self.store)).is_timeline_v1:
            return self._read_external_table(now)  # Hudi upgraded the table, perhaps during this read
        if not view.seq and config.created.columns and not config.table_id and not config.is_timeline_v1:
            return TableSnapshot(config, theirs, view)  # another engine created the table, and it has no writes yet
        if not view.seq:
            raise TableNotFound(
                f"Path {self.store.uri} has properties but no commits. If its creation was interrupted, call create "
                "again. If another engine truncated the table, its next write makes it a table again.",
                path=self.store.uri,
            )
        return TableSnapshot(replace(config, created=theirs.created()).with_schemas(view.schemas), theirs, view)

    def _history_of_hudi(self, config: TableConfig) -> ExternalHistory:
        from hoodoo.timeline.hudi.timeline_v1 import TimelineV1History

        return TimelineV1History(self.store, config) if config.is_timeline_v1 else ExternalHistory(self.store)

    def _overlaid(self, state: TableState, found: Sequence[CompletedInstant]) -> TableSnapshot:
        if any(one.action == RESTORE for one in found):  # slot positions are invalid until a write adopts the restore
            return self._read_external_table(state.config)
        overlay = MergedHistory(self.timeline.history, state.config.created)
        view = overlay.head()
        return TableSnapshot(state.config.with_schemas(view.schemas), overlay, view)

    # ---- writing
    def context(self, engine: Engine | None = None) -> Context:
        """Prepare a write.

        Commits of other engines are recorded first. Raises UnsupportedTable if hoodoo cannot adopt the commits or
        cannot write to the table.
        """
        from hoodoo.engine.local import LocalEngine
        from hoodoo.storage.probe import require_safe_server
        from hoodoo.writers.context import Context

        self.config.require_writable()
        require_safe_server(self.store)
        if not self._alone:
            require_no_outer_table(self.store)
            self._alone = True
        ours = self.timeline.history
        if self.history is not ours:
            from hoodoo.writers.adopt import CommitImporter

            if not ours.has_commits() and not self.look().view.seq:
                self._begin()
            elif not ours.has_commits():
                CommitImporter(ours, engine or LocalEngine(), self.environment.now_ms()).adopt_all_commits()
            while ours.has_commits() and (found := list_unimported_commits(ours)):
                self._adopt(found[0])
            self.timeline.prepare_for_write()
        self.seen = self._known()

        def run_plans(view: View) -> None:
            from hoodoo.compactor.compaction import plans

            plans.run_open_plans(context, view)

        def change(alterations: Sequence[Alteration]) -> None:
            from hoodoo.compactor.alter import apply_column_changes

            apply_column_changes(context, alterations)

        context = Context(self.store, self.timeline, self.index, engine or LocalEngine(), run_plans, change)
        return context

    def context_at(self, position: PositionLike | None) -> tuple[Context, TableSnapshot]:
        """Prepare a write, and read the table state at a position.

        The call first adopts commits of other engines. It raises the errors of `at` and `context`.
        """
        seen = self.at(position)
        context = self.context()
        return context, seen if seen.history is self.timeline.history else self.at(position)

    def finished(self, context: Context, done: Committed) -> WriteResult:
        """Run hooks and table services after a finished commit."""
        from hoodoo.readers.exact_counts import CommitRowCounter
        from hoodoo.table.commit_hooks import call_commit_hooks
        from hoodoo.table.results import WriteResult

        call_commit_hooks(self.store.uri, done)
        waited_seconds = self.run_services(context, done.cursor.seq) if done.instant else 0.0
        self.seen = seen = self._known()
        view = seen.history.known_head()
        measure = partial(_lag, self.timeline, view, seen.config)
        count = CommitRowCounter(self.store, seen.config, view.table, done.cursor.seq)
        return WriteResult(**vars(done), waited_seconds=waited_seconds, _measure=measure, _count=count)

    def run_services(self, context: Context, slot: int) -> float:
        """Run table services after a commit.

        Returns:
            The time in seconds that the call waited for lagging workers.
        """
        from hoodoo.compactor import inline

        return inline.run_services_after_commit(context, self._known().config, slot)

    def services(self) -> ServiceTarget:
        from hoodoo.compactor.worker import ServiceTarget

        store, environment = self.store, self.environment
        return ServiceTarget(store.uri, self.context, lambda: TableHandle(store, environment).services())

    def newest_config(self) -> TableConfig:
        return self.look().config

    def _known(self) -> TableSnapshot:
        history = self.timeline.history
        view = history.known_head()
        config = hoodie_properties.apply_settings(self.timeline.last_state().config, view.settings, view.schemas)
        return TableSnapshot(config, history, view)

    def _begin(self) -> None:
        """Write the first commit of an empty table.

        The slot gets the modification time of the table properties, which precedes any commit of the other engine.
        """
        from hoodoo.timeline import create_table

        created = self.store.modified_ms(PROPERTIES)
        now = self.environment.now_ms()
        seen, at = self.seen, now if created is None else min(created, now)
        create_table.write_first_commit(self.store, seen.config, seen.view.table, at, self.environment)
        self.timeline.history.head()

    def _adopt(self, found: CompletedInstant) -> None:
        from hoodoo.engine.local import LocalEngine
        from hoodoo.writers.adopt import CommitImporter

        CommitImporter(self.timeline.history, LocalEngine(), self.environment.now_ms()).adopt_commit(found)
