"""Table services that a writer runs inline, after its commit.

It writes a checkpoint, runs due table services, and may wait for compaction. Failures are logged and not raised,
because the commit is already final.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from hoodoo.compactor.backpressure import slow_down_writer
from hoodoo.compactor.service_list import SERVICES
from hoodoo.compactor.service_turn import Service, ServiceRun
from hoodoo.redact import redact
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views import checkpoint
from hoodoo.writers.context import Context

log = logging.getLogger("hoodoo.compactor")
T = TypeVar("T")


def run_services_after_commit(context: Context, config: TableConfig, seq: int) -> float:
    """Run table services after a commit.

    Returns the seconds that the writer waited for workers.
    """
    turn = ServiceRun(context, config, context.timeline.history.known_head())
    _guarded("checkpoint", partial(_checkpoint, turn))
    for service in SERVICES.values():
        _guarded(service.name, partial(_serve, service, turn))
    return _guarded("waiting for workers", partial(slow_down_writer, context, config, seq)) or 0.0


def _guarded(step_name: str, step: Callable[[], T]) -> T | None:
    try:
        return step()
    except Exception as problem:  # the commit is final, so no exception may reach the writer
        log.warning("%s after a commit failed, but the commit is final: %s", step_name, redact(str(problem)))
        return None


def _serve(service: Service, turn: ServiceRun) -> None:
    if service.due(turn):
        service.run(turn)


def _checkpoint(turn: ServiceRun) -> None:
    history = turn.context.timeline.history
    if checkpoint.is_due(turn.view, history.checkpointed, turn.config.options.checkpoint_every):
        checkpoint.write(turn.context.store, turn.view)
        history.record_checkpoint(turn.view.seq)


__all__ = ["run_services_after_commit"]
