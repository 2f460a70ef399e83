"""Spool files, which buffer bytes in memory or on disk.

A small buffer is in memory, and a large buffer in an unnamed temporary file in $TMPDIR. The operating system deletes
the file even if the process is killed.
"""

from __future__ import annotations

import mmap
import tempfile
from typing import IO

import pyarrow as pa

IN_MEMORY = 32 << 20


class Spool:
    """Spool file, which buffers bytes in memory or on disk."""

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
        if self._file is None:
            return pa.py_buffer(b"".join(self._pieces))
        self._file.flush()
        mapped = mmap.mmap(self._file.fileno(), self._size, access=mmap.ACCESS_READ)
        self._file.close()  # the memory map keeps the bytes
        return pa.py_buffer(mapped)
