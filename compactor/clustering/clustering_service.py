"""Clustering service, which packs small files.

Each turn packs only a few units, because logs may grow during the turn, and a writer should not wait long.
"""

from __future__ import annotations

from hoodoo.compactor.service_turn import Service, ServiceCounters, ServiceRun

_UNITS = 8


def due(turn: ServiceRun) -> bool:
    if turn.duty:
        return turn.duty.changed(turn.view)
    every = turn.config.options.clean_every
    return bool(every) and turn.view.commits % (every or 1) == 0 and not turn.has_live_worker()


def pack_some_small_files(turn: ServiceRun) -> bool:
    """Pack some small files.

    Returns True if more may be left.
    """
    from hoodoo.compactor.clustering.cluster import pack_small_files

    if turn.duty:
        turn.duty.looked(turn.view)
    result = pack_small_files(turn.context, turn.limits, turn.stopped, units=_UNITS)
    if not result.units:
        return False
    seconds = turn.seconds()
    turn.tell(
        "clustered",
        ServiceCounters(1, result.units, result.bytes_read, result.bytes_written, seconds=seconds),
        units=result.units,
        yielded=result.yielded,
        files_before=result.files_before,
        files_after=result.files_after,
        bytes_read=result.bytes_read,
        bytes_written=result.bytes_written,
        seconds=seconds,
    )
    return True


CLUSTER = Service("cluster", due, pack_some_small_files)
