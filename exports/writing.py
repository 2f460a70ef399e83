"""Writes the files of an export, and counts them."""

from __future__ import annotations

from threading import Lock

from hoodoo.storage.store import BytesLike, Store


class Writing:
    """A store as an export writes to it.

    Files whose name follows from their bytes, or whose bytes follow from slots, are created once: who comes later with
    the same bytes has written them, too.
    """

    def __init__(self, store: Store) -> None:
        self.store, self.files, self.bytes = store, 0, 0
        self._lock = Lock()

    def once(self, key: str, data: bytes) -> None:
        """Create `key`. Raises FileExistsError where other bytes are there, or were and are deleted by now."""
        try:
            self.store.write_once(key, data)
        except FileNotFoundError:
            raise FileExistsError(key) from None
        self._count(data)

    def first(self, key: str, data: BytesLike) -> int:
        """Create `key`, unless it is there: its bytes then say the same. Returns how many bytes it has."""
        try:
            self.store.create(key, data)
        except FileExistsError:
            return self.store.size(key)
        self._count(data)
        return len(data)

    def replace(self, key: str, data: bytes) -> None:
        """Create or replace `key`."""
        self.store.put(key, data)
        self._count(data)

    def _count(self, data: BytesLike) -> None:
        with self._lock:  # threads write overlays
            self.files += 1
            self.bytes += len(data)
