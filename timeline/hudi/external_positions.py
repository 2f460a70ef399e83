"""Source positions of ingestion jobs in external commits, made by Apache Hudi's streamer, and in lost hoodoo commits.

A hoodoo commit has the position of its slot in its metadata (`hoodoo.ingest`). A commit of Hudi's streamer contains its
checkpoint, and counts as the next commit of a separate application. A checkpoint equal to the newest one is ignored:
each hoodoo commit repeats it, and other Hudi writers may be configured to repeat it.
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

_EARLIER_PLACE = "deltastreamer.checkpoint.key"  # in tables before version 8
_SHAPE = {"app": str, "n": int, "position": str}


class ExternalPositions:
    """Source positions of applications in a sequence of external commits."""

    def __init__(self, before: View) -> None:
        """Start a sequence of external commits after the table state `before`."""
        self._versions, self._streamed = dict(before.transactions), before.streamed

    def told(self, slot: Slot, record: Mapping[str, Any]) -> Slot:
        """Add the source position in a commit's metadata to the commit's slot, with its application or streamer
        checkpoint.

        `record` is the metadata of the commit. Raises CorruptTable if the position in it is invalid.
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
        """Return the application, version number and source position in the metadata of a hoodoo commit.

        Returns None for a commit without a source position, or if another writer repeated the position of an earlier
        commit.
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


__all__ = ["ExternalPositions"]
