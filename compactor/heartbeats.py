"""Hints that workers leave beside a table: who lives, who runs which plan, and what fails.

They save work and prove nothing. None is left where the table was dropped or renamed away, because a file would make
its folders again.
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
PLAN_FRESH_S = 30.0  # a plan whose hint is younger is being run by somebody


@dataclass(frozen=True)
class ServiceProblem:
    """The last error of a service.

    Attributes:
        worker: The name of the worker.
        service: The name of the service, or of a part of its work.
        error: The name of the error's class.
        message: The text of the error.
        file: The file that the error names, '' where it names none.
        at_ms: When it happened, in milliseconds since 1970.
    """

    worker: str
    service: str
    error: str
    message: str
    file: str
    at_ms: int

    @staticmethod
    def of(worker: str, service: str, error: Exception, now_ms: int) -> ServiceProblem:
        """Describe an error."""
        details = error.details if isinstance(error, HoodooError) else {}
        file = str(details.get("file") or details.get("key") or getattr(error, "filename", "") or "")
        return ServiceProblem(worker, service, type(error).__name__, redact(str(error))[:_MESSAGE], file, now_ms)


def leave(store: Store, key: str, data: bytes) -> None:
    """Write a hint, unless there is no table any more."""
    if store.exists(PROPERTIES):
        store.put(key, data)


def beat(store: Store, worker: str) -> None:
    """Say that `worker` lives: a hint for writers, never a proof."""
    leave(store, f"{HEARTBEATS}{WORKER}{worker}", b"")


def tell(store: Store, worker: str, problems: Iterable[ServiceProblem]) -> None:
    """Say what fails in `worker` now, and forget what it said before."""
    found = [asdict(problem) for problem in problems]
    key = f"{HEARTBEATS}{PROBLEMS}{worker}"
    if found:
        leave(store, key, json.dumps(found).encode())
    else:
        store.delete(key)


def problems(store: Store) -> list[ServiceProblem]:
    """What every worker said last, the newest first."""
    found = []
    for key, _ in store.list(HEARTBEATS + PROBLEMS):
        try:
            said = [ServiceProblem(**one) for one in strict_json(store.get(key), key)]
        except (FileNotFoundError, CorruptTable, TypeError):
            continue  # gone meanwhile, or of a release that says it in another way
        found += [one for one in said if isinstance(one.at_ms, int) and isinstance(one.message, str)]
    return sorted(found, key=lambda one: -one.at_ms)


def stop_beating(store: Store, worker: str) -> None:
    """Take back the heartbeat of `worker`."""
    store.delete(f"{HEARTBEATS}{WORKER}{worker}")


def plan_hint(instant: str) -> str:
    """Key by which whoever runs a plan says so."""
    return f"{HEARTBEATS}plan-{instant}"


def holder(store: Store, instant: str) -> str:
    """Who said that it runs this plan; '' for nobody."""
    try:
        return store.get(plan_hint(instant)).decode(errors="replace")
    except FileNotFoundError:
        return ""


def held(store: Store, instant: str, now_ms: int) -> bool:
    """Tell whether somebody said within `PLAN_FRESH_S` that it runs this plan."""
    at = store.modified_ms(plan_hint(instant))
    return at is not None and now_ms - at < PLAN_FRESH_S * 1000


def worker_lives(store: Store, now_ms: int, timeout_s: float) -> bool:
    """Tell whether a worker of this table gave a heartbeat within `timeout_s`."""
    beats = (store.modified_ms(key) for key, _ in store.list(HEARTBEATS + WORKER))
    return any(
        at is not None and abs(now_ms - at) < timeout_s * 1000 for at in beats
    )  # one from the far future is nobody's
