"""A local store whose operations fail on demand: the one seam where faults enter."""

from __future__ import annotations

from typing import Any

from hoodoo.errors import StoreUnavailable
from hoodoo.storage.local import LocalStore

WRITES = ("put_if_absent", "put", "delete")
ALL = (*WRITES, "get", "get_range", "size", "list", "open_input")


class Died(BaseException):
    """The process ended here: nothing after it is carried out."""


class FaultyStore(LocalStore):
    """fault(number, operation, key) is asked before each operation (numbered from 1) and answers None or one of:

    'die' / 'die after': the process ends before / after it; 'lost' / 'lost after': StoreUnavailable before / after it
    took effect.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.count, self.dead, self.log = 0, False, []  # type: ignore[var-annotated]
        self.fault: Any = lambda number, operation, key: None
        self.counted = WRITES

    def _around(self, operation: str, key: str, run: Any) -> Any:
        if self.dead:
            raise Died
        if operation not in self.counted:
            return run()
        self.count += 1
        self.log.append((operation, key))
        what = self.fault(self.count, operation, key)
        if what == "die":
            self.dead = True
            raise Died
        if what == "lost":
            raise StoreUnavailable("the request was lost", key=key)
        found = run()
        if what == "die after":
            self.dead = True
            raise Died
        if what == "lost after":
            raise StoreUnavailable("the reply was lost", key=key)
        return found

    def put_if_absent(self, key: str, data: Any, durable: bool = True) -> None:
        return self._around("put_if_absent", key, lambda: super(FaultyStore, self).put_if_absent(key, data, durable))

    def put(self, key: str, data: Any) -> None:
        return self._around("put", key, lambda: super(FaultyStore, self).put(key, data))

    def delete(self, key: str) -> None:
        return self._around("delete", key, lambda: super(FaultyStore, self).delete(key))

    def get(self, key: str) -> bytes:
        return self._around("get", key, lambda: super(FaultyStore, self).get(key))

    def list(self, prefix: str, after: str = "") -> Any:
        return self._around("list", prefix, lambda: iter(list(super(FaultyStore, self).list(prefix, after))))
