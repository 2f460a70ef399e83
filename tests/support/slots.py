"""Slots as tests want them: every field that must be there has a value."""

from __future__ import annotations

from typing import Any

from hoodoo.timeline.slots.slot import Slot


def make_slot(seq: int = 1, **fields: Any) -> Slot:
    """A completed upsert in slot `seq` of table 't', on the slot before it. fields: what is to be otherwise."""
    given = {
        "prev": "",
        "table": "t",
        "instant": "20260101000000000",
        "action": "commit",
        "outcome": "completed",
        "operation": "UPSERT",
        "nonce": "n",
        "base_seq": seq - 1,
        "completed_at": seq,
    }
    return Slot(seq=seq, **{**given, **fields})
