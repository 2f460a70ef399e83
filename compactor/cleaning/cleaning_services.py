"""Services that clean and archive a table.

The clean service of a writer only deletes files beyond retention. The clean service of a worker has two more steps: it
drops expired partitions in an ordinary commit, and it removes the orphan files of dead writers.
"""

from __future__ import annotations

from hoodoo.compactor.service_turn import Service, ServiceCounters, ServiceRun, ServiceState

_HOUR_S = 3600.0  # interval of orphan removal, and of cleaning and archiving of a table without writes
_EXPIRE_EVERY_S = 600.0
_ORPHAN_HOURS = 24.0  # a pending write that began longer ago counts as dead
_EXPIRE, _SWEEP, _CLEAN, _ARCHIVE = "expire", "sweep", "clean", "archive"  # clocks


# ---- cleaning
def is_clean_service_due(turn: ServiceRun) -> bool:
    duty = turn.duty
    if duty is None:
        return turn.enough_commits_since(turn.view.cleaned_at_commit)
    return _expires(turn, duty) or duty.is_time(_SWEEP, _HOUR_S) or _cleans(turn, duty)


def _expires(turn: ServiceRun, duty: ServiceState) -> bool:
    return turn.config.options.partition_ttl_hours is not None and duty.is_time(_EXPIRE)


def _cleans(turn: ServiceRun, duty: ServiceState) -> bool:
    is_time = turn.enough_commits_since(turn.view.cleaned_at_commit) or duty.is_time(_CLEAN) or duty.worker.once
    return is_time and duty.changed(turn.view)


def run_clean(turn: ServiceRun) -> bool:
    """Run the clean service.

    Returns True if it deleted files. A writer only deletes files beyond retention. Before that, a worker drops expired
    partitions and removes orphan files.
    """
    from hoodoo.compactor.cleaning.clean import clean

    duty = turn.duty
    if duty:
        if _expires(turn, duty):
            _expire(turn, duty)
        if not turn.stopped() and duty.is_time(_SWEEP, _HOUR_S):
            _sweep(turn, duty)
        if turn.stopped() or not _cleans(turn, duty):
            return False
        duty.looked(turn.view)
    result = clean(turn.context.timeline, turn.config)
    if duty:
        duty.schedule_next_run(_CLEAN, _HOUR_S)
    if result.files:
        work = ServiceCounters(1, bytes_deleted=result.bytes, seconds=turn.seconds())
        turn.tell("cleaned", work, instant=result.instant, files=result.files, bytes=result.bytes)
    return bool(result.files)


def _expire(turn: ServiceRun, duty: ServiceState) -> None:
    from hoodoo.compactor.cleaning import retention

    hours = turn.config.options.partition_ttl_hours
    assert hours is not None
    expired, _ = retention.drop_expired_partitions(turn.context, hours)
    duty.schedule_next_run(_EXPIRE, _EXPIRE_EVERY_S)
    if expired.instant:
        turn.tell("expired", instant=expired.instant, partitions=len(expired.partitions), rows=expired.rows)


def _sweep(turn: ServiceRun, duty: ServiceState) -> None:
    from hoodoo.compactor.cleaning.sweep import remove_orphan_files

    swept = remove_orphan_files(turn.context.timeline, _ORPHAN_HOURS)
    duty.schedule_next_run(_SWEEP, _HOUR_S)
    if swept.rolled_back or swept.files:
        turn.tell("swept", rolled_back=swept.rolled_back, files=swept.files, bytes=swept.bytes, **swept.kinds)
    if swept.external:
        turn.tell("external files found", files=len(swept.external), first=swept.external[0])


# ---- archiving, as often as the table is cleaned
def is_archive_service_due(turn: ServiceRun) -> bool:
    if turn.duty is None:
        return turn.enough_commits_since(turn.view.cleaned_at_commit)
    return turn.enough_commits_since(turn.duty.done_at_commit) or turn.duty.is_time(_ARCHIVE)


def run_archive(turn: ServiceRun) -> bool:
    from hoodoo.compactor.cleaning.archive import archive

    result = archive(turn.context.timeline, turn.config)
    if turn.duty:
        turn.duty.done_at_commit = turn.view.commits
        turn.duty.schedule_next_run(_ARCHIVE, _HOUR_S)
    if result.slots or result.instants:
        turn.tell("archived", ServiceCounters(1, seconds=turn.seconds()), slots=result.slots, instants=result.instants)
    return False


CLEAN = Service("clean", is_clean_service_due, run_clean)
ARCHIVE = Service("archive", is_archive_service_due, run_archive)
