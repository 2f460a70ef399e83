"""Follows how far applications have read their sources through commits that have no slot yet: those of Apache Hudi's
streamer, and commits of ours whose slot was lost or is made anew.

A commit of ours says in its metadata what its slot said (`hoodoo.ingest`). One of Hudi's streamer says its place, and
is the next commit of an application of its own. A text that is the newest one already says nothing new: each commit of
ours repeats it, and other writers of Hudi may be told to. Knows the metadata of commits only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hoodoo.errors import CorruptTable
from hoodoo.timeline.hudi.commit_metadata import PLACE, REACHED
from hoodoo.timeline.slots.shape import fits
from hoodoo.timeline.slots.slot import STREAMED, Slot
from hoodoo.timeline.slots.streamed import HUDI_STREAMER
from hoodoo.timeline.views.view import View

_EARLIER_PLACE = "deltastreamer.checkpoint.key"  # of tables before version 8
_SHAPE = {"app": str, "n": int, "position": str}


class ForeignPlaces:
    """What commits say of places in sources, one after the other."""

    def __init__(self, before: View) -> None:
        """before: the slots until now."""
        self._versions, self._streamed = dict(before.transactions), before.streamed

    def told(self, slot: Slot, record: Mapping[str, Any]) -> Slot:
        """`slot`, whose commit's metadata is `record`: with its application and position, and the place it publishes.
        Raises CorruptTable.
        """
        if not slot.writes_rows:
            return slot
        extra = record.get("extraMetadata") or {}
        text = str(extra.get(PLACE) or extra.get(_EARLIER_PLACE) or "")
        if said := self._ours(extra, slot.published):
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

    def _ours(self, extra: Mapping[str, Any], key: str) -> tuple[str, int, str] | None:
        """Application, number and position of a commit of ours; None where it has none, or others have repeated what an
        earlier one said.
        """
        text = extra.get(REACHED)
        if not text:
            return None
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            said = None
        if not fits(said, _SHAPE) or not said["app"] or not said["position"]:
            raise CorruptTable(
                f"{key or 'An archived commit'} has no valid source position of an application: its {REACHED} "
                f"is {str(text)[:100]!r}. Restore the file from a backup.",
                file=key,
            )
        newer = said["n"] > self._versions.get(said["app"], -1)
        return (said["app"], said["n"], said["position"]) if newer else None


__all__ = ["ForeignPlaces"]
