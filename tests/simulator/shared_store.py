"""One object store in memory that all actors of a simulation share, and the handle through which one actor sees it.

Reads and lists are strongly consistent, as S3's are; a listing is read page by page. Every operation of a handle is a
step of the
simulation: before it the scheduler may run anybody else, and the fault plan may lose the request, lose the reply,
deliver the request late, or end the actor. This module knows keys and bytes, never tables.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from hoodoo.errors import StoreUnavailable
from hoodoo.storage.store import Store

if TYPE_CHECKING:
    from scheduler import Actor, Scheduler


class Died(BaseException):
    """The process ended here: nothing after it is carried out."""


Watcher = Callable[[str, str, bytes | None], None]


class Objects:
    """Keys and bytes. `watch(what, key, bytes before)` is told of every change, at the moment it takes effect."""

    def __init__(self, now: Callable[[], int]) -> None:
        self.data: dict[str, bytes] = {}
        self.written: dict[str, int] = {}
        self.keys: list[str] = []
        self.now = now
        self.watch: Watcher = lambda what, key, before: None

    def put_if_absent(self, key: str, data: bytes) -> None:
        if key in self.data:
            raise FileExistsError(key)
        self.put(key, data)

    def put(self, key: str, data: bytes) -> None:
        before = self.data.get(key)
        if before is None:
            insort(self.keys, key)
        self.data[key], self.written[key] = data, self.now()
        self.watch("put", key, before)

    def delete(self, key: str) -> None:
        before = self.data.pop(key, None)
        if before is not None:
            del self.keys[bisect_left(self.keys, key)]
            self.watch("delete", key, before)

    def get(self, key: str) -> bytes:
        try:
            return self.data[key]
        except KeyError:
            raise FileNotFoundError(key) from None

    def page(self, prefix: str, after: str, size: int) -> list[tuple[str, int]]:
        """(key, bytes) of at most `size` keys with `prefix` that sort after `after`, in order."""
        start = bisect_right(self.keys, after) if after >= prefix else bisect_left(self.keys, prefix)
        return [(key, len(self.data[key])) for key in self.keys[start : start + size] if key.startswith(prefix)]


class Handle(Store):
    """One actor's view of the shared objects."""

    def __init__(
        self, scheduler: Scheduler, objects: Objects, actor: Actor, lists_by_prefix: bool, page_size: int
    ) -> None:
        self.uri = "sim://table"
        self.scheduler, self.objects, self.actor = scheduler, objects, actor
        self.lists_by_prefix, self.page_size = lists_by_prefix, page_size

    def _step(self, operation: str, key: str, run: Callable[[], Any], late: Callable[[], None] | None = None) -> Any:
        """late: the effect of a request that arrives after its sender gave up on it; None for reads."""
        actor, scheduler = self.actor, self.scheduler
        scheduler.before(actor, operation, key)
        fault = scheduler.faults.choose(actor, operation, key)
        scheduler.record(actor, operation, key, fault)
        if fault == "die":
            actor.dead = True
            raise Died
        if fault == "lost" or (fault == "late" and late is None):
            raise StoreUnavailable("the request was lost", key=key)
        if fault == "late":
            assert late is not None
            scheduler.send_late(actor, operation, key, late)
            raise StoreUnavailable("no reply came in time", key=key)
        try:
            found = run()
        except OSError as refused:
            scheduler.outcome(type(refused).__name__)
            scheduler.after(actor)
            if fault in ("reply lost", "die after"):
                self._after(fault, key)
            raise
        scheduler.after(actor)
        self._after(fault, key)
        return found

    def _after(self, fault: str, key: str) -> None:
        if fault == "die after":
            self.actor.dead = True
            raise Died
        if fault == "reply lost":
            raise StoreUnavailable("the reply was lost", key=key)

    def put_if_absent(self, key: str, data: Any, durable: bool = True) -> None:
        held = bytes(data)

        def late() -> None:
            if key not in self.objects.data:
                self.objects.put(key, held)

        self._step("put_if_absent", key, lambda: self.objects.put_if_absent(key, held), late)

    def put(self, key: str, data: Any) -> None:
        held = bytes(data)
        self._step("put", key, lambda: self.objects.put(key, held), lambda: self.objects.put(key, held))

    def get(self, key: str) -> bytes:
        return self._step("get", key, lambda: self.objects.get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._step(
            "get_range", key, lambda: self.objects.get(key)[start : start + length if length >= 0 else None]
        )

    def size(self, key: str) -> int:
        return self._step("size", key, lambda: len(self.objects.get(key)))

    def list(self, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        while True:
            found = self._page(prefix, after)
            yield from found
            if len(found) < self.page_size:
                return
            after = found[-1][0]

    def _page(self, prefix: str, after: str) -> list[tuple[str, int]]:
        return self._step("list", f"{prefix}*", lambda: self.objects.page(prefix, after, self.page_size))

    def versions(self, prefix: str, after: str = "") -> Iterator[tuple[str, str]]:
        yield from ((key, str(self.objects.written.get(key))) for key, _ in self.list(prefix, after))

    def version(self, key: str) -> str:
        return self._step("size", key, lambda: str(self.objects.written[key]) if key in self.objects.data else "")

    def delete(self, key: str) -> None:
        self._step("delete", key, lambda: self.objects.delete(key), lambda: self.objects.delete(key))

    def open_input(self, key: str) -> pa.NativeFile:
        return pa.BufferReader(self._step("open_input", key, lambda: self.objects.get(key)))

    def url(self, key: str) -> str:
        return f"{self.uri}/{key}"

    def modified_ms(self, key: str) -> int | None:
        return self._step(
            "modified_ms", key, lambda: self.objects.written.get(key) if key in self.objects.data else None
        )

    def pause(self, seconds: float) -> None:
        self.scheduler.sleep(self.actor, seconds)
