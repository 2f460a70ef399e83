"""Maintenance methods of a table: its services, and what checks and mends it.

A part of `hoodoo.table.Table`. Checks arguments and delegates; what each service does is in hoodoo.compactor.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from hoodoo.arguments import flag, instant_text, number_from
from hoodoo.engine.session import is_frame
from hoodoo.errors import CorruptTable, OptionError, TableNotFound, TableReplaced
from hoodoo.hints import explained
from hoodoo.table.handle import TableHandle
from hoodoo.writers.batches.batch import prepare
from hoodoo.writers.batches.input import ArrowLike, to_arrow
from hoodoo.writers.batches.write_options import WriteOptions

if TYPE_CHECKING:
    from hoodoo.compactor.cleaning.archive import ArchiveResult
    from hoodoo.compactor.cleaning.clean import CleanResult
    from hoodoo.compactor.cleaning.purge import PurgeReport
    from hoodoo.compactor.cleaning.retention import Expired
    from hoodoo.compactor.cleaning.sweep import SweepResult
    from hoodoo.compactor.clustering.cluster import ClusterResult
    from hoodoo.compactor.compaction.plans import CompactionResult
    from hoodoo.compactor.limits import Limits
    from hoodoo.compactor.status import lag
    from hoodoo.compactor.status.advice import Services
    from hoodoo.compactor.table_salvage import SalvageReport
    from hoodoo.readers.verify import Report
    from hoodoo.table.partition_values import PartitionValues
    from hoodoo.table.quarantine.target import QuarantinedTable

_RESTORES = (
    "rollback ends a pending write; to undo commits, restore(position) makes the table what it was (hoodoo restore "
    "PATH POSITION). history() lists the commits."
)


@explained
class Maintained:
    """The maintenance methods of `Table`."""

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
        """Run open compaction plans, then compact every file group with at least `logs_min` logs.

        Args:
            logs_min: How many log files make a file group due. Default 1.
            strategy: Which file groups come first: 'log_size' (default) takes those with the most log bytes,
                'newest_partitions' takes partitions in descending order of their path, 'whole_partition' takes every
                file group with logs of a partition where one is due.
            memory_bytes: How much memory, in bytes, all file groups in work take together, at least 1 MiB. None
                (default): 1 GiB.
            bytes_per_second: How many bytes are read and written per second at most. None (default): no limit.
            groups_at_once: How many file groups are in work at a time at most. None (default): one per core.

        Returns:
            The number of file groups compacted, the bytes read and written, and the instants of the completed plans.

        Raises:
            OptionError: An argument does not have one of the values above.
            CorruptTable: A file is damaged. The other file groups are compacted first.
        """
        from hoodoo.compactor.compaction import plans
        from hoodoo.compactor.compaction.strategies import Strategy

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
        """Sort the rows of each partition by columns, or pack small files into larger ones.

        Reads that filter by the columns then skip more. No row changes, so reads of changes show nothing of it.

        Args:
            by: The column or columns to sort by, at most 8. None (default): only pack small files.
            order: 'linear' (default); or 'zorder' or 'hilbert', for several columns that are filtered alike.
            partitions: The partitions to sort or pack, as values or dicts, as `delete_partitions` takes them. None
                (default): all.
            memory_bytes: How much memory, in bytes, all file groups in work take together, at least 1 MiB. None
                (default): 1 GiB.
            bytes_per_second: How many bytes are read and written per second at most. None (default): no limit.
            groups_at_once: How many file groups are in work at a time at most. None (default): one per core.

        Returns:
            The numbers of units done and given up, of files before and after, and of bytes read and written.

        Raises:
            ColumnError: `by` names a column that the table does not have, or whose type has no order.
            OptionError: Another argument does not have one of the values above, or `by` names a column twice or more
                than 8.
            PartitionValueError: The table has no partitions, or a value does not fit its column.
            CorruptTable: A file is damaged. The other files are clustered first.
        """
        from hoodoo.compactor.clustering import cluster as clustering
        from hoodoo.table.partition_values import partition_folders

        context = self.handle.context()
        paths = None if partitions is None else partition_folders(self.handle.config, partitions)
        return clustering.cluster(context, by, order, paths, _limits(memory_bytes, bytes_per_second, groups_at_once))

    def services(self) -> Services:
        """Describe the state of the table's services, in figures and in words.

        It says which work is owed, which workers live, what is held, and what to do where something is behind. It
        changes nothing.

        Returns:
            The figures, the workers, the plans and the advice.

        Raises:
            UnsupportedTable: Another engine wrote to the table, and no write of hoodoo has adopted that yet.
        """
        from hoodoo.compactor.status import advice

        seen = self.handle.look()
        self.handle.require_adopted(seen, "services begin once a write of hoodoo has adopted that")
        return advice.services(self.handle.timeline, seen.config, seen.view, self.handle.store.uri)

    def clean(
        self, retain_hours: float | None = None, retain_commits: int | None = None, retain_versions: int | None = None
    ) -> CleanResult:
        """Delete files that no snapshot within retention needs.

        Files that a savepoint, a pin, an open plan or a consumer needs stay too. The arguments replace the table's
        options for this call only.

        Args:
            retain_hours: Snapshots younger than this many hours stay readable. None (default): the option
                `retain_hours`.
            retain_commits: At least this many of the newest commits stay readable. None (default): the option
                `retain_commits`.
            retain_versions: At most this many versions of a file group stay, whatever the other two would keep. None
                (default): the option `retain_versions`.

        Returns:
            The number of files deleted, their bytes, and the oldest slot whose snapshot stays readable; where nothing
            was deleted, `why`.

        Raises:
            OptionError: An argument is not a number from 0, or `retain_versions` is not a whole number from 1.
        """
        from hoodoo.compactor import export_service
        from hoodoo.compactor.cleaning import clean as cleaning
        from hoodoo.compactor.cleaning import retention as retaining
        from hoodoo.compactor.cleaning.kept import why_kept

        hours, commits = (
            number_from("retain_hours", retain_hours, 0),
            number_from("retain_commits", retain_commits, 0, whole=True),
        )
        versions = number_from("retain_versions", retain_versions, 1, whole=True)
        context = self.handle.context()
        state = context.timeline.look()
        config = state.config
        export_service.before_clean(context, config, state.view)
        done = cleaning.clean(context.timeline, config, hours, commits, versions)
        if done.instant:
            return done
        return replace(
            done, why=why_kept(context.timeline, retaining.retention(config.options, hours, commits, versions))
        )

    def expire(self, older_than_hours: float | None = None) -> Expired:
        """Drop the partitions in which no row was written for a time.

        It drops them as `delete_partitions` does. A partition that is written meanwhile stays.

        Args:
            older_than_hours: The time in hours. None (default): the option `partition_ttl_hours`.

        Returns:
            The paths of the dropped partitions, the number of their rows, and the instant of the commit.

        Raises:
            OptionError: The table has no partitions, or neither the argument nor the option gives a number above 0.
            CommitConflict: Other writers came first more than `max_retries` times. Nothing was dropped.
            CommitUnknown: The store did not say in time whether the commit succeeded; ask its `resolve()`.
        """
        from hoodoo.compactor.cleaning import retention as retaining

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
        """Delete slots that nothing needs, and move old instants into the history folder of Hudi's timeline.

        The arguments replace the table's options for this call only. What retention keeps readable is never touched.

        Args:
            older_than_hours: Slots and instants older than this many hours may go, never younger ones than retention
                keeps. None (default): slots go by the option `archive_after_hours`, instants once they are older than
                retention.
            keep_instants: How many of the newest instants of Hudi's timeline stay, from 1. None (default): the option
                `archive_keep_instants`.

        Returns:
            The numbers of slots deleted and of instants moved, the oldest slot that stays, and why it stays.

        Raises:
            OptionError: `older_than_hours` is not a number from 0, or `keep_instants` is not a whole number from 1.
        """
        from hoodoo.compactor.cleaning import archive as archiving

        hours, keep = (
            number_from("older_than_hours", older_than_hours, 0),
            number_from("keep_instants", keep_instants, 1, whole=True),
        )
        context = self.handle.context()
        return archiving.archive(context.timeline, context.timeline.look().config, hours, keep)

    def sweep(self, older_than_hours: float = 24.0) -> SweepResult:
        """Roll back writes that never ended, and delete files that dead writers left.

        It lists the whole table.

        Args:
            older_than_hours: Only writes begun and files left longer ago than this many hours are touched. Default 24.

        Returns:
            The number of instants rolled back, and the files deleted by kind.

        Raises:
            OptionError: `older_than_hours` is not a number from 0.
        """
        from hoodoo.compactor.cleaning import sweep as sweeping

        hours = number_from("older_than_hours", older_than_hours, 0, optional=False)
        return sweeping.sweep(self.handle.context().timeline, hours)

    def purge(self, data: ArrowLike, older_than_hours: float = 24.0) -> PurgeReport:
        """Make rows unrecoverable, and prove it.

        It deletes the keys, rewrites and deletes every file that holds one, and then reads the keys of all files again.
        Snapshots from before are no longer readable afterwards. Rows of the quarantine that have one of the keys are
        purged first, by the same rules, in whatever partition. Of rows of the quarantine that are cut only the
        beginning was kept, so their keys cannot be read: while there are any, nothing is proved. Hudi's metadata table,
        whose indexes hold keys, is deleted, and Hudi builds it anew.

        Args:
            data: Rows, as `delete` takes them, with the key and partition columns.
            older_than_hours: What writers left that died longer ago than this many hours is deleted too. Younger
                remains are named in the report, which is `proved` only without any. Default 24.

        Returns:
            What was deleted, which files still hold a key, and whether the purge is `proved`.

        Raises:
            PurgeBlocked: A savepoint, a pin or a consumer needs a file that holds a key. It is raised before any row
                changes.
            OptionError: `older_than_hours` is not a number from 0.
            ColumnError: A key or partition column is missing, or a value does not fit its column.
            KeyValueError: A key is null, too long or ambiguous.
            PartitionValueError: A partition value cannot be the name of a folder.
            CommitConflict: Other writers came first more than `max_retries` times.
            CommitUnknown: The store did not say in time whether a commit succeeded; ask its `resolve()`.
        """
        from hoodoo.compactor.cleaning import purge as purging
        from hoodoo.readers.spark_spellings import by_table_names
        from hoodoo.table.quarantine.purge import purge_beside
        from hoodoo.timeline.properties import metadata_properties

        hours = number_from("older_than_hours", older_than_hours, 0, optional=False)
        context = self.handle.context()
        state = context.timeline.heal()
        config = state.config
        if is_frame(data):
            data = by_table_names(data, config.spellings)
            named = dict.fromkeys((*config.key, *config.placing))
            data = data.select(*(name for name in named if name in data.columns)).toArrow()
        known = pa.schema([config.schema.field(name) for name in config.key])
        keys = config.spellings.rows(to_arrow(data, config.spellings.hints(known)))
        batch = prepare(keys, config, WriteOptions(delete=True))
        metadata_properties.remove_metadata_table(self.handle.store, self.handle.environment.now_ms())
        aside, unread = purge_beside(cast("QuarantinedTable", self), batch, hours)
        return purging.purge(context, state, batch, hours).with_quarantine(aside, unread)

    def rollback(self, instant: str) -> None:
        """End a pending instant for good, and delete its files.

        It undoes no commit; `restore` makes the table what it was before one.

        Args:
            instant: The 17 digits of the instant, as `timeline` shows them.

        Raises:
            AlreadyCommitted: The instant is completed, or was rolled back before.
            PositionError: `instant` is not 17 digits, nobody began it on this table, or it is no write but, for
                example, a compaction.
        """
        self.handle.context().timeline.rollback(instant_text(instant, _RESTORES))

    def resolve(self, instant: str) -> bool:
        """Settle whether an instant was committed.

        It is for CommitUnknown from another process. A pending instant is rolled back by a slot, so that it never comes
        true later.

        Args:
            instant: The 17 digits of the instant, from the `details` of CommitUnknown.

        Returns:
            True if the instant was committed. False if it was not and never will be.

        Raises:
            PositionError: `instant` is not 17 digits, or nobody began it on this table.
            StoreUnavailable: The store does not answer.
            CommitUnknown: The store still does not say what it holds.
        """
        return self.handle.context().timeline.resolve(instant_text(instant))

    def verify(self) -> Report:
        """Check slots, files, keys and index against each other, and rows against the table's checks.

        It reads the whole table. What a dead writer left unpublished is published first, as by whoever opens a table.

        Returns:
            The report, which names every problem; `ok` is True if there is none. Also a table that is damaged, deleted
            or replaced by another one is a problem in the report and no error.

        Raises:
            UnsupportedTable: Another engine wrote to the table, and no write of hoodoo has adopted that yet.
        """
        from hoodoo.readers.verify import Verifier
        from hoodoo.timeline.hudi.foreign import Overlay

        with suppress(CorruptTable, TableNotFound, TableReplaced):  # what cannot be looked at is what the report says
            seen = self.handle.heal()
            if not (isinstance(seen.history, Overlay) and seen.history.lost()):
                self.handle.require_adopted(seen, "it can be verified once a write of hoodoo has adopted that")
        return Verifier(self.handle.store, self.handle.config).run()

    def salvage(self, dry_run: bool = False, accept_loss: bool = False) -> SalvageReport:
        """Make file groups with damaged files readable again.

        Every sound row stays, in new base files, and the damaged files are copied to `.hoodie/.hoodoo/salvaged/`. It is
        one commit and reads the whole table. A key whose newest version is damaged is a loss: it keeps its last sound
        version, if there is one, and is in the report's `lost`. A row whose delete is damaged comes back; it is a loss
        too.

        Args:
            dry_run: True only reports what would be done. Default False.
            accept_loss: True accepts losses. Default False.

        Returns:
            The damage, the losses, and the copies of the damaged files.

        Raises:
            OptionError: There is a loss, and neither `accept_loss` nor `dry_run` is True. It is raised before anything
                is written.
            CommitConflict: Other writers came first more than `max_retries` times. Nothing was written.
        """
        from hoodoo.compactor import table_salvage as salvaging

        return salvaging.salvage(self.handle.context(), flag("dry_run", dry_run), flag("accept_loss", accept_loss))

    def lag(self) -> lag.Lag:
        """Measure the work that the table's services owe.

        Returns:
            The lag, in which every figure is 0 when nothing is owed.
        """
        from hoodoo.compactor.status import lag

        config, _, view = self.handle.look()
        return lag.measure(self.handle.timeline, view, config)


def _limits(memory_bytes: int | None, bytes_per_second: float | None, groups_at_once: int | None) -> Limits:
    from hoodoo.compactor.limits import Limits

    number_from("groups_at_once", groups_at_once, 1, whole=True)
    least = Limits()
    return Limits(
        number_from("memory_bytes", memory_bytes, 1, whole=True) or least.memory_bytes,
        number_from("bytes_per_second", bytes_per_second, 0),
        groups_at_once,
    )
