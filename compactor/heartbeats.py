"""Hints that workers leave beside a table: who lives, and who runs which plan. They save work and prove nothing."""

from __future__ import annotations

from hoodoo.storage.store import Store
from hoodoo.timeline.layout import HEARTBEATS

WORKER = "worker-"
PLAN_FRESH_S = 30.0  # a plan whose hint is younger is being run by somebody


def beat(store: Store, worker: str) -> None:
    """Say that `worker` lives: a hint for writers, never a proof."""
    store.put(f"{HEARTBEATS}{WORKER}{worker}", b"")


def stop_beating(store: Store, worker: str) -> None:
    store.delete(f"{HEARTBEATS}{WORKER}{worker}")


def plan_hint(instant: str) -> str:
    """Key by which whoever runs a plan says so."""
    return f"{HEARTBEATS}plan-{instant}"


def held(store: Store, instant: str, now_ms: int) -> bool:
    """Did somebody say within `PLAN_FRESH_S` that it runs this plan?"""
    at = store.modified_ms(plan_hint(instant))
    return at is not None and now_ms - at < PLAN_FRESH_S * 1000


def worker_lives(store: Store, now_ms: int, timeout_s: float) -> bool:
    """Has a worker of this table beaten within `timeout_s`?"""
    beats = (store.modified_ms(key) for key, _ in store.list(HEARTBEATS + WORKER))
    return any(
        at is not None and abs(now_ms - at) < timeout_s * 1000 for at in beats
    )  # one from the far future is nobody's
