"""What keeps a table in shape: the services, each called once, and what holds, brings back or checks a snapshot.

The half of `hoodoo.table.Table` that changes no row of its users'. Checks arguments and delegates; what each does is in
hoodoo.compactor.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import cast

import pyarrow as pa

from hoodoo.arguments import flag, instant_text, number_from
from hoodoo.compactor import salvage as salvaging
from hoodoo.compactor.cleaning import archive as archiving
from hoodoo.compactor.cleaning import clean as cleaning
from hoodoo.compactor.cleaning import purge as purging
from hoodoo.compactor.cleaning import retention as retaining
from hoodoo.compactor.cleaning import sweep as sweeping
from hoodoo.compactor.cleaning.archive import ArchiveResult
from hoodoo.compactor.cleaning.clean import CleanResult
from hoodoo.compactor.cleaning.purge import PurgeReport
from hoodoo.compactor.cleaning.retention import Expired
from hoodoo.compactor.cleaning.sweep import SweepResult
from hoodoo.compactor.clustering import cluster as clustering
from hoodoo.compactor.clustering.cluster import ClusterResult
from hoodoo.compactor.compaction import plans
from hoodoo.compactor.compaction.plans import CompactionResult
from hoodoo.compactor.compaction.strategies import Strategy
from hoodoo.compactor.limits import Limits
from hoodoo.compactor.salvage import SalvageReport
from hoodoo.compactor.status import advice, lag
from hoodoo.compactor.status.advice import Services
from hoodoo.consumer import Consumer, ConsumerLag, lags
from hoodoo.engine.session import is_frame
from hoodoo.errors import CorruptTable, OptionError, TableNotFound, TableReplaced
from hoodoo.handle import TableHandle
from hoodoo.partition_values import PartitionValues, partition_folders
from hoodoo.quarantine import Quarantine, Target, purge_beside
from hoodoo.readers.pin import Pin
from hoodoo.readers.positions import Cursor, PositionLike, resolve
from hoodoo.readers.verify import Report, Verifier
from hoodoo.results import WriteResult
from hoodoo.timeline import consumers, leases, savepoints
from hoodoo.timeline.hudi.foreign import Overlay
from hoodoo.writers import restore as restoring
from hoodoo.writers.batch import prepare
from hoodoo.writers.input import ArrowLike, to_arrow


class Maintained:
    """The services of a table; the rest of it is Table's."""

    handle: TableHandle

    # ---- table services
    def compact(
        self,
        logs_min: int = 1,
        strategy: str = "log_size",
        memory_bytes: int | None = None,
        bytes_per_second: float | None = None,
        groups_at_once: int | None = None,
    ) -> CompactionResult:
        """Finish open compaction plans, then compact every file group with at least `logs_min` logs.

        strategy: which come first: 'log_size' (most log bytes), 'newest_partitions', or 'whole_partition'. The others
        limit what it takes of the machine: memory (default 1 GiB), bytes read and written per second, file groups at a
        time. Raises OptionError.
        """
        limits = _limits(memory_bytes, bytes_per_second, groups_at_once)
        return plans.compact(
            self.handle.context(),
            number_from("logs_min", logs_min, 1, whole=True, optional=False),
            Strategy(strategy),
            limits,
        )

    def cluster(
        self,
        by: str | Sequence[str] | None = None,
        order: str = "linear",
        partitions: PartitionValues | None = None,
        memory_bytes: int | None = None,
        bytes_per_second: float | None = None,
        groups_at_once: int | None = None,
    ) -> ClusterResult:
        """Sort rows `by` columns, so that reads that filter by them skip more; without columns only pack small files
        into larger ones.

        order: 'linear', or 'zorder' or 'hilbert' where several columns are filtered alike. partitions: values or dicts,
        as delete_partitions takes them (default: all). No row changes. Raises ColumnError, OptionError,
        PartitionValueError.
        """
        context = self.handle.context()
        paths = None if partitions is None else partition_folders(self.handle.config, partitions)
        return clustering.cluster(context, by, order, paths, _limits(memory_bytes, bytes_per_second, groups_at_once))

    def services(self) -> Services:
        """What the services owe, who works, what is held, and in words what to do where something is behind. Changes
        nothing.
        """
        seen = self.handle.look()
        self.handle.require_adopted(seen, "services begin once a write of hoodoo has adopted that")
        return advice.services(self.handle.timeline, seen.config, seen.view, self.handle.store.uri)

    def clean(
        self, retain_hours: float | None = None, retain_commits: int | None = None, retain_versions: int | None = None
    ) -> CleanResult:
        """Delete files that no snapshot within retention needs. The arguments replace the table's retention for this
        call.
        """
        hours, commits = (
            number_from("retain_hours", retain_hours, 0),
            number_from("retain_commits", retain_commits, 0, whole=True),
        )
        versions = number_from("retain_versions", retain_versions, 1, whole=True)
        context = self.handle.context()
        return cleaning.clean(context.timeline, context.timeline.look().config, hours, commits, versions)

    def expire(self, older_than_hours: float | None = None) -> Expired:
        """Drop the partitions in which no row was written for `older_than_hours` (default: the option
        partition_ttl_hours), as delete_partitions does.

        One that is written meanwhile stays. Raises OptionError where there are no partitions, or no time is given.
        """
        context = self.handle.context()
        given = number_from("older_than_hours", older_than_hours, 0)
        config = context.timeline.look().config
        options = config.options if given is None else replace(config.options, partition_ttl_hours=given)
        hours = retaining.check(options, config.partition_by).partition_ttl_hours
        if hours is None:
            raise OptionError(
                "The table has no partition_ttl_hours; set it, or pass older_than_hours.", option="older_than_hours"
            )
        expired, result = retaining.expire(context, hours)
        self.handle.finished(context, result)
        return expired

    def archive(self, older_than_hours: float | None = None, keep_instants: int | None = None) -> ArchiveResult:
        """Delete slots that nothing can need any more, and move old instants of Hudi's timeline into its history
        folder.

        The arguments replace the table's options for this call; what retention keeps readable is never touched.
        """
        hours, keep = (
            number_from("older_than_hours", older_than_hours, 0),
            number_from("keep_instants", keep_instants, 1, whole=True),
        )
        context = self.handle.context()
        return archiving.archive(context.timeline, context.timeline.look().config, hours, keep)

    def sweep(self, older_than_hours: float = 24.0) -> SweepResult:
        """Roll back writes begun longer ago than this that never ended, and delete files that dead writers left. Lists
        the whole table.
        """
        hours = number_from("older_than_hours", older_than_hours, 0, optional=False)
        return sweeping.sweep(self.handle.context().timeline, hours)

    def purge(self, data: ArrowLike, older_than_hours: float = 24.0) -> PurgeReport:
        """Make rows unrecoverable: delete their keys, rewrite and delete every file that holds them, and look again
        whether none is left.

        `data` has the key and partition columns, as for delete. Snapshots from before are no longer readable
        afterwards.
        older_than_hours: what writers that died longer ago left is deleted too; younger remains are named in the
        report, and the answer is only `.proved` without any. Raises PurgeBlocked, before anything is written, if
        somebody needs a file that holds a key. Rows of the quarantine that have one of the keys go first, by the same
        rules; those of which only the beginning was kept cannot be looked into, and nothing is proved while there are
        any.
        """
        hours = number_from("older_than_hours", older_than_hours, 0, optional=False)
        context = self.handle.context()
        state = context.timeline.heal()
        config = state.config
        config.require_no_metadata_table()
        if is_frame(data):
            data = data.select(*dict.fromkeys((*config.key, *config.partition_by))).toArrow()
        batch = prepare(
            to_arrow(data, pa.schema([config.schema.field(name) for name in config.key])), config, delete=True
        )
        aside, unread = purge_beside(Quarantine(cast(Target, self)), batch, hours)
        return purging.purge(context, state, batch, hours).with_quarantine(aside, unread)

    def rollback(self, instant: str) -> None:
        """End a pending instant for good and delete its files. Raises AlreadyCommitted for a completed one."""
        self.handle.context().timeline.rollback(instant_text(instant))

    def resolve(self, instant: str) -> bool:
        """Was `instant` committed? False: it was not and never will be, because a rollback fences it. For CommitUnknown
        from another process.
        """
        return self.handle.context().timeline.resolve(instant_text(instant))

    # ---- keeping and bringing back
    def pin(self, as_of: PositionLike | None = None, hours: float = 1.0) -> Pin:
        """Hold a snapshot (default: the newest) for `hours`: no clean deletes a file of it. Use it in a `with` block,
        or release() it.

        Writes a lease into the table, so it needs permission to write. Raises SnapshotExpired, PositionError,
        OptionError.
        """
        _, (config, history, view) = self.handle.context_at(as_of)
        return Pin(history, config, *leases.take(history, self.handle.environment, view.seq, hours))

    def savepoint(self, name: str, as_of: PositionLike | None = None) -> Cursor:
        """Keep a snapshot (default: the newest) readable under `name` until delete_savepoint; `as_of=name` then reads
        it, restore(name) brings it back.
        """
        context, seen = self.handle.context_at(as_of)
        slot = savepoints.save(context.timeline, name, seen.view.seq)
        return Cursor(slot.table, slot.position)

    def savepoints(self) -> dict[str, Cursor]:
        """Names and positions of the savepoints."""
        view = self.handle.look().view
        return {name: Cursor(view.table, seq) for name, seq in view.savepoints.items()}

    def delete_savepoint(self, name: str) -> None:
        """Give up a savepoint: the next clean may take what only it holds. Raises PositionError for an unknown name."""
        savepoints.give_up(self.handle.context().timeline, name)

    def consumer(self, name: str, start: PositionLike = "earliest") -> Consumer:
        """The consumer `name`. If it is new it starts at `start`: 'earliest' (it has read nothing) or a position, which
        it has read up to.

        Cleaning keeps what it has not read, for up to `consumer_hours` beyond retention; one at 'earliest' holds
        nothing, as its first read is the newest snapshot. Raises OptionError for a name that will not do,
        PositionError, SnapshotExpired.
        """
        _, (_, history, _) = self.handle.context_at(None)
        consumers.register(history, name, resolve(history, start, exclusive=True))
        return Consumer(self.handle, name)

    def consumers(self) -> list[ConsumerLag]:
        """Every consumer, where it is and how far behind."""
        config, history, view = self.handle.look()
        return lags(self.handle.timeline, history, view, config)

    def restore(self, to: PositionLike) -> WriteResult:
        """Bring back the rows as they were at a savepoint or any readable position, as a new commit; history stays
        readable.

        The result counts rows of rewritten file groups: `inserted` come back, `deleted` go. Versions of `transaction=`
        are not undone.
        """
        context, seen = self.handle.context_at(None)
        return self.handle.finished(context, restoring.restore(context, resolve(seen.history, to)))

    def verify(self) -> Report:
        """Check slots, files, keys and index against each other; the report names every problem. Reads the whole table.

        What a writer left unpublished when it died is published first, as whoever opens a table does.
        """
        with suppress(CorruptTable, TableNotFound, TableReplaced):  # what cannot be looked at is what the report says
            seen = self.handle.heal()
            if not (isinstance(seen.history, Overlay) and seen.history.lost()):
                self.handle.require_adopted(seen, "it can be verified once a write of hoodoo has adopted that")
        return Verifier(self.handle.store, self.handle.config).run()

    def salvage(self, dry_run: bool = False, accept_loss: bool = False) -> SalvageReport:
        """Make file groups with damaged files readable again: every sound row stays, in new base files, and the damaged
        files are copied to `.hoodie/.hoodoo/salvaged/`. One commit; reads the whole table.

        A key whose newest version is damaged keeps its last sound one, if there is one, and is in the report's `lost`.
        Then it raises OptionError unless accept_loss is given. dry_run: only report. Raises CommitConflict.
        """
        return salvaging.salvage(self.handle.context(), flag("dry_run", dry_run), flag("accept_loss", accept_loss))

    def lag(self) -> lag.Lag:
        """The work that table services owe."""
        config, _, view = self.handle.look()
        return lag.measure(self.handle.timeline, view, config)


def _limits(memory_bytes: int | None, bytes_per_second: float | None, groups_at_once: int | None) -> Limits:
    number_from("groups_at_once", groups_at_once, 1, whole=True)
    least = Limits()
    return Limits(
        number_from("memory_bytes", memory_bytes, 1, whole=True) or least.memory_bytes,
        number_from("bytes_per_second", bytes_per_second, 0),
        groups_at_once,
    )
