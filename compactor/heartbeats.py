"""Files that tell other processes about workers: heartbeats, running plans and errors.

Hints avoid duplicate work and are not reliable. A worker writes no hint after the table was dropped or renamed, because
the file would recreate the table's folders.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from hoodoo.errors import CorruptTable, HoodooError
from hoodoo.redact import redact
from hoodoo.storage.store import Store
from hoodoo.timeline.layout import HEARTBEATS, PROPERTIES
from hoodoo.timeline.slots.slot import strict_json

WORKER = "worker-"
PROBLEMS = "problems-"
_MESSAGE = 2_000
PLAN_FRESH_S = 30.0  # a worker runs a plan if the hint of the plan is younger


@dataclass(frozen=True)
class ServiceProblem:
    """Last error of a table service in a worker, as stored with the table.

    Attributes:
        worker: The name of the worker.
        service: The name of the service, or of a part of its work.
        error: The name of the error's class.
        message: The message of the error.
        file: The file that the error refers to, or ''.
        at_ms: Time of the error, in milliseconds since 1970.
    """

    worker: str
    service: str
    error: str
    message: str
    file: str
    at_ms: int

    @staticmethod
    def of(worker: str, service: str, error: Exception, now_ms: int) -> ServiceProblem:
        """Create the description of an exception in a worker's service."""
        details = error.details if isinstance(error, HoodooError) else {}
        file = str(details.get("file") or details.get("key") or getattr(error, "filename", "") or "")
        return ServiceProblem(worker, service, type(error).__name__, redact(str(error))[:_MESSAGE], file, now_ms)


def leave(store: Store, key: str, data: bytes) -> None:
    """Write a hint file, unless the table was dropped or renamed."""
    if store.exists(PROPERTIES):
        store.put(key, data)


def beat(store: Store, worker: str) -> None:
    """Renew the heartbeat of a worker, which shows writers that the worker is alive."""
    leave(store, f"{HEARTBEATS}{WORKER}{worker}", b"")


def tell(store: Store, worker: str, problems: Iterable[ServiceProblem]) -> None:
    """Store the current errors of a worker with the table, replacing its earlier errors."""
    records = [asdict(problem) for problem in problems]
    key = f"{HEARTBEATS}{PROBLEMS}{worker}"
    if records:
        leave(store, key, json.dumps(records).encode())
    else:
        store.delete(key)


def problems(store: Store) -> list[ServiceProblem]:
    """Return the errors that all workers have stored with the table, newest first."""
    stored = []
    for key, _ in store.list(HEARTBEATS + PROBLEMS):
        try:
            decoded = [ServiceProblem(**entry) for entry in strict_json(store.get(key), key)]
        except (FileNotFoundError, CorruptTable, TypeError):
            continue  # deleted in the meantime, or written by a release with another format
        stored += [entry for entry in decoded if isinstance(entry.at_ms, int) and isinstance(entry.message, str)]
    return sorted(stored, key=lambda entry: -entry.at_ms)


def delete_heartbeat(store: Store, worker: str) -> None:
    """Delete the heartbeat of a worker that stops."""
    store.delete(f"{HEARTBEATS}{WORKER}{worker}")


def plan_hint(instant: str) -> str:
    """Return the path of the file that shows that a worker runs a compaction plan."""
    return f"{HEARTBEATS}plan-{instant}"


def holder(store: Store, instant: str) -> str:
    """Return the name of the worker that runs a compaction plan, or '' if no worker runs it."""
    try:
        return store.get(plan_hint(instant)).decode(errors="replace")
    except FileNotFoundError:
        return ""


def held(store: Store, instant: str, now_ms: int) -> bool:
    """Return whether a worker has shown within the last 30 seconds that it runs a compaction plan."""
    renewed_ms = store.modified_ms(plan_hint(instant))
    return renewed_ms is not None and now_ms - renewed_ms < PLAN_FRESH_S * 1000


def worker_is_alive(store: Store, now_ms: int, timeout_s: float) -> bool:
    """Return whether a worker of this table sent a heartbeat in the last `timeout_s` seconds."""
    beats = (store.modified_ms(key) for key, _ in store.list(HEARTBEATS + WORKER))
    return any(
        sent_ms is not None and abs(now_ms - sent_ms) < timeout_s * 1000 for sent_ms in beats
    )  # ignore heartbeats from the far future
