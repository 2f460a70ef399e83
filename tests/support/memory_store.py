"""A store that is a dict: as consistent as S3, and copied in no time. For tests that need thousands of tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from hoodoo.errors import StoreUnavailable
from hoodoo.storage.store import Store


class Died(BaseException):
    """The process ended here: nothing after it is carried out."""


class MemoryStore(Store):
    """fault(number, operation, key), asked before each operation that changes something (numbered from 1), answers
    None, 'die' or 'die after'.
    """

    lists_by_prefix = True

    def __init__(self, data: dict[str, bytes] | None = None, at_ms: int = 0) -> None:
        self.uri = "memory://table"
        self.data = dict(data or {})
        self.at_ms = at_ms
        self.count, self.dead = 0, False
        self.fault: Any = lambda number, operation, key: None

    def _change(self, operation: str, key: str, run: Any) -> None:
        if self.dead:
            raise Died
        self.count += 1
        what = self.fault(self.count, operation, key)
        self.dead = what in ("die", "die after")
        if what == "die":
            raise Died
        if what == "lost":
            raise StoreUnavailable("the request was lost", key=key)
        run()
        if what == "die after":
            raise Died

    def put_if_absent(self, key: str, data: Any, durable: bool = True) -> None:
        if not self.dead and key in self.data:
            raise FileExistsError(key)
        self._change("put_if_absent", key, lambda: self.data.__setitem__(key, bytes(data)))

    def put(self, key: str, data: Any) -> None:
        self._change("put", key, lambda: self.data.__setitem__(key, bytes(data)))

    def delete(self, key: str) -> None:
        if self.dead or key in self.data:
            self._change("delete", key, lambda: self.data.pop(key, None))

    def get(self, key: str) -> bytes:
        if self.dead:
            raise Died
        try:
            return self.data[key]
        except KeyError:
            raise FileNotFoundError(key) from None

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.get(key)[start : start + length]

    def size(self, key: str) -> int:
        return len(self.get(key))

    def list(self, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        if self.dead:
            raise Died
        return iter([(key, len(self.data[key])) for key in sorted(self.data) if key.startswith(prefix) and key > after])

    def open_input(self, key: str) -> pa.NativeFile:
        return pa.BufferReader(self.get(key))

    def url(self, key: str) -> str:
        return f"memory://table/{key}"

    def modified_ms(self, key: str) -> int | None:
        return self.at_ms if key in self.data else None

    def pause(self, seconds: float) -> None:
        return
