"""Bytes that may not fit into memory: collected once, then looked at as one buffer. In memory while they are few, else
in a nameless file.

The file lies where Python keeps temporary files ($TMPDIR) and goes with the object, however the process ends. Knows no
store and no format.
"""

from __future__ import annotations

import mmap
import tempfile
from typing import IO

import pyarrow as pa

IN_MEMORY = 32 << 20


class Spool:
    """Takes bytes in order; pyarrow writes to it as to any file object. `buffer()` ends the writing."""

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        self.closed = False
        self._in_memory, self._size = in_memory, 0
        self._file: IO[bytes] | None = None
        self._pieces: list[bytes] = []

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        piece = bytes(data)
        self._size += len(piece)
        self._pieces.append(piece)
        if self._file is None and self._size > self._in_memory:
            self._file = tempfile.TemporaryFile(prefix="hoodoo-")  # noqa: SIM115
        if self._file is not None:
            self._file.writelines(self._pieces)
            self._pieces.clear()
        return len(piece)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        return

    def close(self) -> None:
        self.closed = True

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def buffer(self) -> pa.Buffer:
        """Everything written. A large one is mapped from its file: it takes page cache, which the system may drop, and
        no memory of its own.
        """
        if self._file is None:
            return pa.py_buffer(b"".join(self._pieces))
        self._file.flush()
        mapped = mmap.mmap(self._file.fileno(), self._size, access=mmap.ACCESS_READ)
        self._file.close()  # the map keeps the bytes
        return pa.py_buffer(mapped)
