"""Writer of metadata files for an export."""

from __future__ import annotations

from threading import Lock

from hoodoo.storage.store import BytesLike, Store


class MetadataFileWriter:
    """Writer of metadata files for an export.

    A file whose name depends on its bytes, or whose bytes depend on slots, is created only once. If another exporter
    already wrote the same bytes, the write succeeds.
    """

    def __init__(self, store: Store) -> None:
        self.store, self.files, self.bytes = store, 0, 0
        self._lock = Lock()

    def create_once(self, key: str, data: bytes) -> None:
        """Create a metadata file.

        An existing file with the same bytes is not an error. Raises FileExistsError if the file exists with other
        bytes, or if it was deleted during the call.
        """
        try:
            self.store.write_once(key, data)
        except FileNotFoundError:
            raise FileExistsError(key) from None
        self._count(data)

    def create_and_measure(self, key: str, data: BytesLike) -> int:
        """Create a metadata file and return its size."""
        try:
            self.store.create(key, data)
        except FileExistsError:
            return self.store.size(key)
        self._count(data)
        return len(data)

    def replace(self, key: str, data: bytes) -> None:
        self.store.put(key, data)
        self._count(data)

    def _count(self, data: BytesLike) -> None:
        with self._lock:  # overlays are written by several threads
            self.files += 1
            self.bytes += len(data)
