"""A store in memory that notes every request, by kind and by what it is about."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from memory_store import MemoryStore

from hoodoo.timeline import layout

_ABOUT = {
    layout.PROPERTIES: "properties",
    layout.TIMELINE: "timeline",
    layout.TURN_REQUESTS: "turn_requests",
    layout.SLOTS: "slots",
    layout.CLAIMS: "claims",
    layout.WATERMARKS: "watermark",
    layout.CHECKPOINTS: "checkpoints",
    layout.MARKERS: "markers",
    layout.INDEX: "index",
    layout.KEYS: "keys",
    layout.HEARTBEATS: "heartbeats",
    layout.HUDI_HEARTBEATS: "Hudi's heartbeats",
    layout.LEASES: "leases",
    layout.CONSUMERS: "consumers",
}


def about(key: str) -> str:
    """What a key belongs to: 'slots', 'timeline', ..., 'data'."""
    return next((name for prefix, name in _ABOUT.items() if key.startswith(prefix)), "data")


class CountedStore(MemoryStore):
    """requests: ('list' | 'get' | 'head' | 'put' | 'delete', about) -> how often. chain: requests that waited for
    each other, one after the other.
    """

    def __init__(self) -> None:
        super().__init__()
        self.requests: Counter[tuple[str, str]] = Counter()
        self.chain = 0
        self._lock = threading.Lock()

    def together(self, works: Sequence[Callable[[], object]]) -> None:
        """For an Environment: works that run at the same time take as long as the longest of them."""
        began, longest = self.chain, self.chain
        for work in works:
            self.chain = began
            work()
            longest = max(longest, self.chain)
        self.chain = longest

    def _note(self, kind: str, key: str) -> None:
        with self._lock:  # some are asked together, on threads
            self.requests[kind, about(key)] += 1
            self.chain += 1

    def put_if_absent(self, key: str, data: Any, durable: bool = True) -> str:
        self._note("put", key)
        super().put_if_absent(key, data, durable)
        return str(hash(self.data[key]))

    def put(self, key: str, data: Any) -> None:
        self._note("put", key)
        super().put(key, data)

    def delete(self, key: str) -> None:
        self._note("delete", key)
        super().delete(key)

    def get(self, key: str) -> bytes:
        self._note("get", key)
        return super().get(key)

    def size(self, key: str) -> int:
        self._note("head", key)
        return len(super().get(key))

    def version(self, key: str) -> str:
        self._note("head", key)
        return str(hash(self.data[key])) if key in self.data else ""

    def list(self, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        self._note("list", prefix)
        return super().list(prefix, after)

    def versions(self, prefix: str, after: str = "") -> Iterator[tuple[str, str]]:
        return ((key, str(hash(self.data[key]))) for key, _ in self.list(prefix, after))

    def open_input(self, key: str) -> pa.NativeFile:
        self._note("get", key)
        return super().open_input(key)
