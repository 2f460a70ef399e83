"""Ingestion positions in the commits of external engines.

The metadata of a hoodoo commit contains the position of its slot (`hoodoo.ingest`). A commit of Hudi's streamer
contains a checkpoint, and counts as the next commit of a separate application. A checkpoint that equals the newest
checkpoint is ignored, because hoodoo commits and possibly other Hudi writers repeat it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hoodoo.errors import CorruptTable
from hoodoo.timeline.hudi.commit_metadata import PLACE, REACHED
from hoodoo.timeline.slots.shape import matches_types
from hoodoo.timeline.slots.slot import STREAMED, Slot
from hoodoo.timeline.slots.streamed import HUDI_STREAMER
from hoodoo.timeline.views.view import View

_EARLIER_PLACE = "deltastreamer.checkpoint.key"  # in tables before version 8
_SHAPE = {"app": str, "n": int, "position": str}


class ExternalPositions:
    """Ingestion positions in the commits of external engines."""

    def __init__(self, before: View) -> None:
        self._versions, self._streamed = dict(before.transactions), before.streamed

    def add_commit(self, slot: Slot, record: Mapping[str, Any]) -> Slot:
        if not slot.writes_rows:
            return slot
        extra = record.get("extraMetadata") or {}
        text = str(extra.get(PLACE) or extra.get(_EARLIER_PLACE) or "")
        if said := self._own_position(extra, slot.published):
            application, number, position = said
            self._streamed = self._streamed.after(application, text)
            slot = self._of(slot, application, number, position)
        elif text and text != self._streamed.text:
            self._streamed = self._streamed.after_hudi(text)
            slot = self._of(slot, HUDI_STREAMER, self._versions.get(HUDI_STREAMER, -1) + 1, text)
        if not text:
            return slot
        return replace(slot, streamed=tuple(self._streamed), needs=(*slot.needs, STREAMED))

    def _of(self, slot: Slot, application: str, number: int, position: str) -> Slot:
        self._versions[application] = number
        return replace(slot, transaction=(application, number), reached=position)

    def _own_position(self, extra: Mapping[str, Any], key: str) -> tuple[str, int, str] | None:
        # Returns None for a commit without a source position, or with a position that another writer repeated.
        text = extra.get(REACHED)
        if not text:
            return None
        try:
            stored = json.loads(text)
        except (ValueError, RecursionError):
            stored = None
        if not matches_types(stored, _SHAPE) or not stored["app"] or not stored["position"]:
            raise CorruptTable(
                f"Commit {key or 'in the archived timeline'} has an invalid source position: {REACHED} is "
                f"{str(text)[:100]!r}. Restore the file from a backup.",
                file=key,
            )
        newer = stored["n"] > self._versions.get(stored["app"], -1)
        return (stored["app"], stored["n"], stored["position"]) if newer else None


__all__ = ["ExternalPositions"]
