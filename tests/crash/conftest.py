"""A folder for the tables of crash tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def fast_folder() -> Iterator[Path]:
    """In memory where there is such a file system: what fails is the process or the call, not the disk, and an fsync
    costs nothing there.
    """
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() and os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)
