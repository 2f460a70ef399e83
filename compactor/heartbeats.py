"""Heartbeat files, which show that workers are alive.

These hints contain heartbeats, running plans and errors for other processes. Hints avoid duplicate work and are not
reliable. A worker writes no hint after the table was dropped or renamed, because the file would recreate the table's
folders.
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
    """Last problem of a table service.

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
        details = error.details if isinstance(error, HoodooError) else {}
        file = str(details.get("file") or details.get("key") or getattr(error, "filename", "") or "")
        return ServiceProblem(worker, service, type(error).__name__, redact(str(error))[:_MESSAGE], file, now_ms)


def write_hint_if_table_exists(store: Store, key: str, data: bytes) -> None:
    if store.exists(PROPERTIES):
        store.put(key, data)


def beat(store: Store, worker: str) -> None:
    write_hint_if_table_exists(store, f"{HEARTBEATS}{WORKER}{worker}", b"")


def replace_worker_errors(store: Store, worker: str, problems: Iterable[ServiceProblem]) -> None:
    records = [asdict(problem) for problem in problems]
    key = f"{HEARTBEATS}{PROBLEMS}{worker}"
    if records:
        write_hint_if_table_exists(store, key, json.dumps(records).encode())
    else:
        store.delete(key)


def problems(store: Store) -> list[ServiceProblem]:
    stored = []
    for key, _ in store.list(HEARTBEATS + PROBLEMS):
        try:
            decoded = [ServiceProblem(**entry) for entry in strict_json(store.get(key), key)]
        except (FileNotFoundError, CorruptTable, TypeError):
            continue  # deleted in the meantime, or written by a release with another format
        stored += [entry for entry in decoded if isinstance(entry.at_ms, int) and isinstance(entry.message, str)]
    return sorted(stored, key=lambda entry: -entry.at_ms)


def delete_heartbeat(store: Store, worker: str) -> None:
    store.delete(f"{HEARTBEATS}{WORKER}{worker}")


def running_plan_hint_path(instant: str) -> str:
    return f"{HEARTBEATS}plan-{instant}"


def find_plan_worker(store: Store, instant: str) -> str:
    try:
        return store.get(running_plan_hint_path(instant)).decode(errors="replace")
    except FileNotFoundError:
        return ""


def is_plan_running(store: Store, instant: str, now_ms: int) -> bool:
    renewed_ms = store.modified_ms(running_plan_hint_path(instant))
    return renewed_ms is not None and now_ms - renewed_ms < PLAN_FRESH_S * 1000


def any_worker_sent_heartbeat(store: Store, now_ms: int, timeout_seconds: float) -> bool:
    beats = (store.modified_ms(key) for key, _ in store.list(HEARTBEATS + WORKER))
    return any(
        sent_ms is not None and abs(now_ms - sent_ms) < timeout_seconds * 1000 for sent_ms in beats
    )  # ignore heartbeats from the far future
