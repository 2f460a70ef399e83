"""Run a part of a test as a user who does not own the files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65534


@contextmanager
def another_user(folder: Path) -> Iterator[None]:
    """Run the block as the user nobody, who owns `folder`, if this process runs as root, whom permissions do not bind.

    Otherwise, the block runs as this user, who owns the folder too.
    """
    if os.geteuid() != 0:
        yield
        return
    for parent in folder.resolve().parents:
        os.chmod(parent, parent.stat().st_mode | 0o011)
    for found in (folder, *folder.rglob("*")):
        os.chown(found, _NOBODY, _NOBODY, follow_symlinks=False)
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
