"""Packing small files as a table service: a few units a turn, as logs may have grown meanwhile and no writer should
wait long.
"""

from __future__ import annotations

from hoodoo.compactor.service_turn import Service, Turn, Work

_UNITS = 8


def due(turn: Turn) -> bool:
    """A worker looks at each change; a writer every `clean_every` commits, if no worker does it: many small commits
    leave files well below the target that none of them would fill up.
    """
    if turn.duty:
        return turn.duty.changed(turn.view)
    every = turn.config.options.clean_every
    return bool(every) and turn.view.commits % (every or 1) == 0 and not turn.a_worker_lives()


def run(turn: Turn) -> bool:
    """Pack some units of small files. Returns True if there may be more."""
    from hoodoo.compactor.clustering.cluster import pack

    if turn.duty:
        turn.duty.looked(turn.view)
    result = pack(turn.context, turn.limits, turn.stopped, units=_UNITS)
    if not result.units:
        return False
    seconds = turn.seconds()
    turn.tell(
        "clustered",
        Work(1, result.units, result.bytes_read, result.bytes_written, seconds=seconds),
        units=result.units,
        yielded=result.yielded,
        files_before=result.files_before,
        files_after=result.files_after,
        bytes_read=result.bytes_read,
        bytes_written=result.bytes_written,
        seconds=seconds,
    )
    return True


CLUSTER = Service("cluster", due, run)
