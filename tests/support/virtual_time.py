"""A world whose seconds cost nothing: processes as greenlets, each asleep until its next moment, and a store whose
requests take as long as each process is told.

A request takes effect in the middle of its time; what is asked together is under way together. So hours of a race
between slow and fast writers pass in seconds, the same each time. Knows no tables.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any

import pyarrow as pa
from greenlet import getcurrent, greenlet
from memory_store import MemoryStore

from hoodoo.timeline.environment import Environment

START_S = 1_760_000_000.0


class Died(BaseException):
    """The world ended here."""


class World:
    """now_s: seconds since 1970. requests: of everybody so far."""

    def __init__(self, seed: int = 0) -> None:
        self.now_s, self.requests = START_S, 0
        self.store = MemoryStore()
        self.written_ms: dict[str, int] = {}
        self.keys: list[str] = []
        self.rng = random.Random(seed)
        self._hub = getcurrent()
        self._waiting: list[tuple[float, int, greenlet]] = []
        self._numbers = count()
        self._problem: BaseException | None = None
        self._ended = False

    def start(self, work: Callable[[], object]) -> greenlet:
        """Let a process, or a thread of one, do `work` from now on."""

        def run() -> None:
            try:
                work()
            except Died:
                return
            except BaseException as problem:  # raised by run()
                self._problem = self._problem or problem

        process = greenlet(run, self._hub)
        heappush(self._waiting, (self.now_s, next(self._numbers), process))
        return process

    def sleep(self, seconds: float) -> None:
        """The process that calls this goes on in `seconds`."""
        heappush(self._waiting, (self.now_s + seconds, next(self._numbers), getcurrent()))
        self._hub.switch()
        if self._ended:
            raise Died

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> float:
        """Let everybody go on for `seconds` or until that holds; the seconds that passed. Nobody goes on afterwards."""
        end, began = self.now_s + seconds, self.now_s
        while self._waiting and not self._problem and not until() and self._waiting[0][0] <= end:
            self.now_s, _, process = heappop(self._waiting)
            process.switch()
        self._ended, passed = True, self.now_s - began
        while self._waiting:
            process = heappop(self._waiting)[2]
            process.parent = getcurrent()
            process.throw(Died)
        if self._problem:
            raise self._problem
        return passed

    def environment(self, name: str) -> Environment:
        """Of a process: everything that the commit core asks for."""
        rng = random.Random(f"{self.rng.random()} {name}")
        return Environment(
            lambda: int(self.now_s * 1000),
            lambda: f"{rng.getrandbits(128):032x}",
            rng.random,
            self.sleep,
            lambda: name,
            lambda: self.now_s,
            self._together,
        )

    def _together(self, works: Sequence[Callable[[], object]]) -> None:
        problems: dict[int, Exception] = {}
        left = len(works)
        caller = getcurrent()

        def one(number: int) -> None:
            nonlocal left
            try:
                works[number]()
            except Exception as problem:
                problems[number] = problem
            left -= 1
            if not left:
                heappush(self._waiting, (self.now_s, next(self._numbers), caller))

        for number in range(len(works)):
            self.start(lambda number=number: one(number))
        if works:
            self._hub.switch()
        if self._ended:
            raise Died
        if problems:
            raise problems[min(problems)]


class FarStore(MemoryStore):
    """How one process sees the world's store: each request takes `request_s`."""

    def __init__(self, world: World, request_s: float) -> None:
        super().__init__()
        self.world, self.request_s = world, request_s
        self.data = world.store.data

    def _travel(self, effect: Callable[[], Any]) -> Any:
        self.world.requests += 1
        self.world.sleep(self.request_s / 2)
        try:
            return effect()
        finally:
            self.world.sleep(self.request_s / 2)

    def _changed(self, key: str) -> None:
        self.world.written_ms[key] = int(self.world.now_s * 1000)

    def put_if_absent(self, key: str, data: Any, durable: bool = True) -> str:  # type: ignore[override]
        def effect() -> str:
            MemoryStore.put_if_absent(self, key, data)
            self._changed(key)
            return str(self.world.written_ms[key])

        return str(self._travel(effect))

    def put(self, key: str, data: Any) -> None:
        def effect() -> None:
            MemoryStore.put(self, key, data)
            self._changed(key)

        self._travel(effect)

    def delete(self, key: str) -> None:
        self._travel(lambda: self.data.pop(key, None))

    def get(self, key: str) -> bytes:
        return bytes(self._travel(lambda: MemoryStore.get(self, key)))

    def list(self, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        return iter(self._travel(lambda: list(MemoryStore.list(self, prefix, after))))

    def versions(self, prefix: str, after: str = "") -> Iterator[tuple[str, str]]:
        return ((key, str(self.world.written_ms[key])) for key, _ in self.list(prefix, after))

    def version(self, key: str) -> str:
        return str(self._travel(lambda: self.world.written_ms[key] if key in self.data else ""))

    def open_input(self, key: str) -> pa.NativeFile:
        return pa.BufferReader(self.get(key))

    def modified_ms(self, key: str) -> int | None:
        return self._travel(lambda: self.world.written_ms.get(key) if key in self.data else None)  # type: ignore[no-any-return]

    def pause(self, seconds: float) -> None:
        self.world.sleep(seconds)
