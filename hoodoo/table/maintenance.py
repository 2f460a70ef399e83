"""Maintenance and repair of tables.

The methods check arguments and call `hoodoo.compactor`, which does the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, cast

import pyarrow as pa

from hoodoo.arguments import check_flag, check_instant, check_number
from hoodoo.errors import CorruptTable, OptionError, TableNotFound, TableReplaced
from hoodoo.hints import suggest_for_methods
from hoodoo.sizes import convert_size_argument
from hoodoo.table.handle import TableHandle

if TYPE_CHECKING:
    from hoodoo.compactor.cleaning.archive import ArchiveResult
    from hoodoo.compactor.cleaning.clean import CleanResult
    from hoodoo.compactor.cleaning.purge_report import PurgeReport
    from hoodoo.compactor.cleaning.retention import Expired
    from hoodoo.compactor.cleaning.sweep import SweepResult
    from hoodoo.compactor.clustering.cluster import ClusterResult
    from hoodoo.compactor.compaction.plans import CompactionResult
    from hoodoo.compactor.limits import ServiceLimits
    from hoodoo.compactor.status import lag
    from hoodoo.compactor.status.advice import Services
    from hoodoo.compactor.table_salvage import SalvageReport
    from hoodoo.compactor.upgrade import AdoptResult
    from hoodoo.readers.verify import Report
    from hoodoo.table.partition_values import PartitionValues
    from hoodoo.table.quarantine.target import QuarantinedTable
    from hoodoo.writers.batches.input import ArrowLike

_RESTORES = (
    "rollback ends a pending write. To undo commits, call restore(position) (hoodoo restore PATH POSITION). "
    "history() lists the commits."
)


@suggest_for_methods
class Maintained:
    """Base class with `Table.compact` and `Table.verify`."""

    handle: TableHandle

    def compact(
        self,
        *,
        logs_min: int = 1,
        strategy: str = "log_size",
        memory_bytes: int | str | None = None,
        bytes_per_second: float | str | None = None,
        groups_at_once: int | None = None,
    ) -> CompactionResult:
        """Merge log files into new base files.

        Open compaction plans run first, then all due file groups: those with at least `logs_min` log files.

        Args:
            logs_min: The minimum number of log files of a file group to compact. Default 1.
            strategy: The order of file groups: 'log_size' (default) starts with the largest log files,
                'newest_partitions' sorts partitions by path in descending order. 'whole_partition' compacts all file
                groups with log files in each partition that has at least one due file group.
            memory_bytes: The memory limit for all concurrent file groups together, in bytes or as a size such as '2GB',
                at least 1 MiB. None (default): 1 GiB.
            bytes_per_second: The maximum number of bytes to read and write per second, as a number or as a size such as
                '50MB'. None (default): no limit.
            groups_at_once: The maximum number of concurrent file groups. None (default): one per core.

        Returns:
            The number of compacted file groups, the bytes read and written, and the instants of the completed plans.

        Raises:
            OptionError: An argument has an invalid value.
            CorruptTable: A file is damaged. The other file groups are compacted first.
        """
        from hoodoo.compactor.compaction import plans
        from hoodoo.compactor.compaction.strategies import CompactionStrategy

        limits = _limits(memory_bytes, bytes_per_second, groups_at_once)
        return plans.compact_files(
            self.handle.context(),
            check_number("logs_min", logs_min, 1, whole=True, optional=False),
            CompactionStrategy(strategy),
            limits,
        )

    def verify(self) -> Report:
        """Read the whole table, and report every inconsistency.

        Rows must satisfy the table's checks. Like opening the table, this call first publishes commits that a crashed
        writer left unpublished.

        Returns:
            The report, which lists all problems. `ok` is True if it lists zero problems. A damaged, deleted or replaced
            table is reported as a problem and does not raise an error.

        Raises:
            UnsupportedTable: Another engine wrote to the table, and hoodoo has not adopted these commits yet.
            SnapshotExpired: Other processes deleted files of the table during every check.
        """
        from hoodoo.readers.verify import verify_table
        from hoodoo.timeline.hudi.external_history import MergedHistory

        with suppress(CorruptTable, TableNotFound, TableReplaced):  # the report contains this error
            seen = self.handle.heal()
            if not (isinstance(seen.history, MergedHistory) and seen.history.lost()):
                self.handle.require_adopted(
                    seen, "Verification is possible after the next write by hoodoo adopts those commits."
                )
        return verify_table(self.handle.store, self.handle.config)


@suggest_for_methods
class Maintenance:
    """Methods that maintain or repair a table."""

    NAMESPACE: ClassVar[str] = "maintenance"

    def __init__(self, table: Maintained) -> None:
        self._table = table
        self._handle = table.handle

    def cluster(
        self,
        sort_by: str | Sequence[str] | None = None,
        *,
        order: str = "linear",
        partitions: PartitionValues | None = None,
        memory_bytes: int | str | None = None,
        bytes_per_second: float | str | None = None,
        groups_at_once: int | None = None,
    ) -> ClusterResult:
        """Sort the rows of a table, or pack its small files.

        Reads that filter by the sort columns then skip more data. Clustering does not change rows, so it does not
        appear in change reads.

        Args:
            sort_by: The column or columns to sort by, at most 8. None (default): only pack small files.
            order: 'linear' (default), or 'zorder' or 'hilbert' if queries filter by several columns equally often.
            partitions: The partitions to sort or pack, as values or dicts, see `delete_partitions`. None (default): all
                partitions.
            memory_bytes: The memory limit for all concurrent file groups together, in bytes or as a size such as '2GB',
                at least 1 MiB. None (default): 1 GiB.
            bytes_per_second: The maximum number of bytes to read and write per second, as a number or as a size such as
                '50MB'. None (default): no limit.
            groups_at_once: The maximum number of concurrent file groups. None (default): one per core.

        Returns:
            The numbers of completed and abandoned units (sets of files that are rewritten together), of files before
            and after, and of bytes read and written.

        Raises:
            ColumnError: `sort_by` names an unknown column, or a column whose type cannot be sorted.
            OptionError: Another argument has an invalid value, or `sort_by` has a duplicate column or more than 8
                columns.
            PartitionValueError: The table is unpartitioned, or a value cannot be converted to its column type.
            CorruptTable: A file is damaged. The other files are clustered first.
        """
        from hoodoo.compactor.clustering import cluster as clustering
        from hoodoo.table.partition_values import convert_to_folders

        context = self._handle.context()
        paths = None if partitions is None else convert_to_folders(self._handle.config, partitions)
        limits = _limits(memory_bytes, bytes_per_second, groups_at_once)
        return clustering.cluster_files(context, sort_by, order, paths, limits)

    def services(self) -> Services:
        """Report the state of all table services.

        The report lists the pending work, the live workers, the snapshots protected from cleaning, and advice if a
        service lags. This call changes nothing.

        Returns:
            The numbers, the workers, the plans and the advice.

        Raises:
            UnsupportedTable: Another engine wrote to the table, and hoodoo has not adopted these commits yet.
        """
        from hoodoo.compactor.status import advice

        seen = self._handle.look()
        self._handle.require_adopted(seen, "Table services start after the next write by hoodoo adopts those commits.")
        return advice.services(self._handle.timeline, seen.config, seen.view, self._handle.store.uri)

    def clean(
        self,
        *,
        retain_hours: float | None = None,
        retain_commits: int | None = None,
        retain_versions: int | None = None,
    ) -> CleanResult:
        """Delete old data files beyond retention.

        Files that a savepoint, a pin, an open plan or a consumer needs are also kept. The arguments override the table
        options for this call only.

        Args:
            retain_hours: Snapshots younger than this many hours stay readable. None (default): the option
                `retain_hours`.
            retain_commits: At least this many of the newest commits stay readable. None (default): the option
                `retain_commits`.
            retain_versions: At most this many versions of each file group are kept. This limit overrides the other two
                arguments. None (default): the option `retain_versions`.

        Returns:
            The number and size of the deleted files, and the oldest slot whose snapshot stays readable. If nothing was
            deleted, `why` gives the reason.

        Raises:
            OptionError: An argument is not a number of at least 0, or `retain_versions` is not an integer of at least
                1.
        """
        from hoodoo.compactor import export_service
        from hoodoo.compactor.cleaning import clean as cleaning
        from hoodoo.compactor.cleaning import retention as retaining
        from hoodoo.compactor.cleaning.kept import explain_kept_files

        hours, commits = (
            check_number("retain_hours", retain_hours, 0),
            check_number("retain_commits", retain_commits, 0, whole=True),
        )
        versions = check_number("retain_versions", retain_versions, 1, whole=True)
        context = self._handle.context()
        state = context.timeline.look()
        config = state.config
        export_service.export_before_clean(context, config, state.view)
        done = cleaning.clean(context.timeline, config, hours, commits, versions)
        if done.instant:
            return done
        return replace(
            done,
            why=explain_kept_files(context.timeline, retaining.retention(config.options, hours, commits, versions)),
        )

    def expire(self, older_than_hours: float | None = None) -> Expired:
        """Drop partitions without recent writes.

        A partition that receives a write during the call is kept.

        Args:
            older_than_hours: The minimum time since the last write, in hours. None (default): the option
                `partition_ttl_hours`.

        Returns:
            The paths of the dropped partitions, the number of their rows, and the instant of the commit.

        Raises:
            OptionError: The table is unpartitioned, or neither the argument nor the option is a number above 0.
            CommitConflict: Other writers committed first more than `max_retries` times. Nothing was dropped.
            CommitUnknown: The store did not confirm in time that the commit succeeded. Call `resolve()` of the error to
                find out.
        """
        from hoodoo.compactor.cleaning import retention as retaining

        context = self._handle.context()
        given = check_number("older_than_hours", older_than_hours, 0)
        config = context.timeline.look().config
        options = config.options if given is None else replace(config.options, partition_ttl_hours=given)
        hours = retaining.check_partition_ttl(options, config.partition_by).partition_ttl_hours
        if hours is None:
            raise OptionError(
                "The table has no option partition_ttl_hours. Set it, or pass older_than_hours.",
                option="older_than_hours",
            )
        expired, result = retaining.drop_expired_partitions(context, hours)
        self._handle.finished(context, result)
        return expired

    def archive(self, older_than_hours: float | None = None, *, keep_instants: int | None = None) -> ArchiveResult:
        """Archive old commits, to shorten the timeline.

        The arguments override the table options for this call only. Snapshots within retention always stay readable.

        Args:
            older_than_hours: The minimum age in hours of the slots and instants to archive. Retention still applies.
                None (default): the option `archive_after_hours` for slots, and retention for instants.
            keep_instants: The number of newest instants to keep in Hudi's timeline, at least 1. None (default): the
                option `archive_keep_instants`.

        Returns:
            The numbers of deleted slots and moved instants, the oldest remaining slot, and the reason why it remains.

        Raises:
            OptionError: `older_than_hours` is not a number of at least 0, or `keep_instants` is not an integer of at
                least 1.
        """
        from hoodoo.compactor.cleaning import archive as archiving

        hours, keep = (
            check_number("older_than_hours", older_than_hours, 0),
            check_number("keep_instants", keep_instants, 1, whole=True),
        )
        context = self._handle.context()
        return archiving.archive(context.timeline, context.timeline.look().config, hours, keep)

    def sweep(self, older_than_hours: float = 24.0) -> SweepResult:
        """Delete the files of crashed writers.

        Abandoned writes are rolled back. This call lists all files of the table.

        Args:
            older_than_hours: The minimum age in hours of the writes and files to remove. Default 24.

        Returns:
            The number of instants rolled back, and the deleted files by kind.

        Raises:
            OptionError: `older_than_hours` is not a number of at least 0.
        """
        from hoodoo.compactor.cleaning import sweep as sweeping

        hours = check_number("older_than_hours", older_than_hours, 0, optional=False)
        return sweeping.remove_orphan_files(self._handle.context().timeline, hours)

    def purge(self, data: ArrowLike, *, older_than_hours: float = 24.0) -> PurgeReport:
        """Delete rows permanently from all snapshots.

        The call deletes the keys, rewrites and deletes every file that contains one of them, and then reads the keys of
        all files again. Earlier snapshots are no longer readable afterwards.

        Matching rows in the quarantine are purged first, in every partition and with the same guarantees. The keys of
        truncated quarantine rows are unreadable, so `proved` is False while the quarantine contains such rows. Hudi's
        metadata table is deleted, because its indexes contain keys. Hudi rebuilds it.

        Args:
            data: The rows to purge, with the key and partition columns, in any form that `delete` accepts.
            older_than_hours: The minimum age in hours of the crashed writers' files to delete as well. The report lists
                younger files, and is `proved` only without them. Default 24.

        Returns:
            The deleted files, the files that still contain a key, and whether the purge is `proved`.

        Raises:
            PurgeBlocked: A savepoint, a pin or a consumer needs a file that contains a key. The table and its
                quarantine are unchanged.
            OptionError: `older_than_hours` is not a number of at least 0.
            ColumnError: A key or partition column is missing, or a value cannot be converted to its column type.
            KeyValueError: A key is null, too long or ambiguous.
            PartitionValueError: A partition value is not a valid folder name.
            CommitConflict: Other writers committed first more than `max_retries` times.
            CommitUnknown: The store did not confirm in time that a commit succeeded. Call `resolve()` of the error to
                find out.
        """
        from hoodoo.compactor.cleaning import purge as purging
        from hoodoo.engine.session import is_spark_dataframe
        from hoodoo.readers.spark_names import by_table_names
        from hoodoo.table.quarantine.purge import purge_quarantine
        from hoodoo.timeline.properties import metadata_properties
        from hoodoo.writers.batches.batch import prepare_batch
        from hoodoo.writers.batches.input import to_arrow
        from hoodoo.writers.batches.write_options import WriteOptions

        hours = check_number("older_than_hours", older_than_hours, 0, optional=False)
        context = self._handle.context()
        state = context.timeline.heal()
        config = state.config
        if is_spark_dataframe(data):
            data = by_table_names(data, config.name_mapping)
            named = dict.fromkeys((*config.key, *config.partition_sources))
            data = data.select(*(name for name in named if name in data.columns)).toArrow()
        known = pa.schema([config.schema.field(name) for name in config.key])
        keys = config.name_mapping.rows(to_arrow(data, config.name_mapping.hints(known)))
        batch = prepare_batch(keys, config, WriteOptions(delete=True))
        beside: list[tuple[PurgeReport | None, int]] = []

        def unblocked() -> None:
            metadata_properties.remove_metadata_table(self._handle.store, self._handle.environment.now_ms())
            beside.append(purge_quarantine(cast("QuarantinedTable", self._table), batch, hours))

        report = purging.purge(context, state, batch, hours, unblocked)
        return report.with_quarantine(*beside[0])

    def rollback(self, instant: str) -> None:
        """Roll back a pending write, and delete its files.

        Use `restore` to undo a completed commit.

        Args:
            instant: The instant as 17 digits, as `inspect.timeline` shows it.

        Raises:
            AlreadyCommitted: The instant is already completed or rolled back.
            PositionError: `instant` is not 17 digits, does not exist in this table, or is not a write but, for example,
                a compaction.
        """
        self._handle.context().timeline.rollback(check_instant(instant, _RESTORES))

    def resolve(self, instant: str) -> bool:
        """Find out whether a write was committed.

        If the write is still pending, it is rolled back. Use it after a CommitUnknown error in another process. Rolling
        back a pending instant ensures that it cannot be committed later.

        Args:
            instant: The instant as 17 digits, from the `details` of CommitUnknown.

        Returns:
            True if the instant was committed, False if it never will be.

        Raises:
            PositionError: `instant` is not 17 digits, or does not exist in this table.
            StoreUnavailable: The store does not respond.
            CommitUnknown: The store still does not confirm its content.
        """
        return self._handle.context().timeline.resolve(check_instant(instant))

    def salvage(self, *, dry_run: bool = False, accept_loss: bool = False) -> SalvageReport:
        """Repair the table if data files are damaged.

        The call keeps all readable rows in new base files, and copies the damaged files to `.hoodie/.hoodoo/salvaged/`.
        It reads the whole table and makes one commit. A key whose newest version is damaged is lost: it reverts to its
        last readable version, if any, and appears in `lost` of the report. If a delete is damaged, the deleted row
        reappears, which also counts as a loss.

        Args:
            dry_run: True returns the report without changing the table. Default False.
            accept_loss: True continues although keys are lost. Default False.

        Returns:
            The damage, the losses, and the copies of the damaged files.

        Raises:
            OptionError: Keys are lost, and neither `accept_loss` nor `dry_run` is True. Nothing was written.
            CommitConflict: Other writers committed first more than `max_retries` times. Nothing was written.
        """
        from hoodoo.compactor import table_salvage as salvaging

        return salvaging.salvage_damaged_files(
            self._handle.context(), check_flag("dry_run", dry_run), check_flag("accept_loss", accept_loss)
        )

    def lag(self) -> lag.Lag:
        """Measure the pending work of table services.

        Returns:
            The lag. All its numbers are 0 if no work is pending.
        """
        from hoodoo.compactor.status import lag

        config, _, view = self._handle.look()
        return lag.measure(self._handle.timeline, view, config)

    def adopt(self) -> AdoptResult:
        """Prepare a table of Apache Hudi for writes by hoodoo.

        The first write to the table also adopts it, except for tables of version 6. `adopt` first upgrades these to
        version 9, as Hudi 1.x does: it compacts log files and rewrites the timeline. During an upgrade, other processes
        must not write to the table. After a crash at any step, call `adopt` again. The table is readable before and
        after. If it had log files or archived commits, time travel and change reads start at the upgrade.

        Returns:
            The previous version of the table, and the steps that were taken.

        Raises:
            UnsupportedTable: The table cannot be adopted, for the reason in the error. Nothing was written.
            CorruptTable: A file is damaged.
        """
        from hoodoo.compactor import upgrade
        from hoodoo.engine.local import LocalEngine

        handle, engine = self._handle, LocalEngine()
        config = handle.look().config
        if config.is_timeline_v1:
            done = upgrade.upgrade_table(handle.store, handle.environment, engine)
        else:
            done = upgrade.finish_upgrade(handle.store, config)
        handle.look()
        handle.context(engine)
        return replace(done, slot=handle.look().view.seq)


def _limits(
    memory_bytes: int | str | None, bytes_per_second: float | str | None, groups_at_once: int | None
) -> ServiceLimits:
    from hoodoo.compactor.limits import ServiceLimits

    return ServiceLimits(
        ServiceLimits.memory_bytes if memory_bytes is None else convert_size_argument("memory_bytes", memory_bytes),
        None if bytes_per_second is None else convert_size_argument("bytes_per_second", bytes_per_second),
        groups_at_once,
    )
