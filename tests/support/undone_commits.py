"""Commits that Apache Hudi takes back after they have got their slot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faulty_store import Died, FaultyStore
from slots import make_slot

import hoodoo
from hoodoo.format.names import instant_of_ms, parse_data_file
from hoodoo.storage.local import LocalStore
from hoodoo.timeline import layout
from hoodoo.timeline.environment import SYSTEM
from hoodoo.timeline.history import History
from hoodoo.timeline.hudi import commit_metadata
from hoodoo.timeline.slots.slot import ROLLED_BACK


def undone(path: Path, write: Callable[[hoodoo.Table], Any], meanwhile: Callable[[], Any] = lambda: None) -> None:
    """A commit gets its slot, its writer dies before it publishes, and Apache Hudi rolls it back.

    write: the commit. meanwhile: what happens before the rollback.
    """
    store = FaultyStore(str(path))
    store.fault = lambda number, operation, key: "die after" if key.startswith(layout.SLOTS) else None
    with pytest.raises(Died):
        write(hoodoo.Table(store))
    instant = History(LocalStore(str(path))).head().instant
    meanwhile()
    for file in [*path.rglob("*.parquet"), *path.rglob(".*.log.*"), *path.glob(f"{layout.TIMELINE}{instant}*")]:
        parsed = parse_data_file(file.name)
        if parsed is None or parsed.instant == instant:
            file.unlink()
    now = SYSTEM.now_ms()
    said = make_slot(
        table="",
        instant=instant_of_ms(now),
        action="rollback",
        outcome=ROLLED_BACK,
        operation="ROLLBACK",
        target=instant,
        target_action="commit",
    )
    name = f"{layout.TIMELINE}{instant_of_ms(now)}_{instant_of_ms(now + 1)}.rollback"
    (path / name).write_bytes(commit_metadata.rollback_metadata(said, {}))
