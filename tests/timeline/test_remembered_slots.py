"""What a process remembers of a table's slots does not grow for as long as it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

import hoodoo


def test_a_process_that_only_writes_forgets_its_oldest_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It remembered each slot that it took, for ever: only those that it read were bounded."""
    monkeypatch.setattr("hoodoo.timeline.history._SLOTS_KEPT", 5)
    table = hoodoo.create(tmp_path / "t", {"id": "bigint"}, key="id", clean_every=None)
    for number in range(12):
        table.upsert([{"id": number}])
    assert len(table.handle.history._slots) == 5
    assert [table.scan(as_of=seq).count() for seq in (table.cursor.seq, table.cursor.seq - 9)] == [12, 3]
