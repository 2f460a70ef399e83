"""What the table must hold: the batches that writers noted, applied in slot order to a dict; and every way in which
actors or table differ from it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from actors import SCHEMA, fingerprint
from table_model import Model

import hoodoo

_ALLOWED_FAILURES = {
    "FENCED",
    "STORE_UNAVAILABLE",
    "COMMIT_CONFLICT",
    "SNAPSHOT_EXPIRED",
}  # nothing was written, and the message says so


def noted(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(actor, what it noted) in each actor's order. A line that a kill cut off was not noted."""
    for file in sorted(folder.glob("*.jsonl")):
        text = file.read_text()
        for line in text[: text.rfind("\n") + 1].splitlines():
            yield file.stem, json.loads(line)


@dataclass
class Judge:
    """violations: what must not be. counts: what happened."""

    table: hoodoo.Table
    folder: Path
    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0

    def __post_init__(self) -> None:
        self.model = Model(("id",), ("part",), ("ts",))
        self.batches: dict[tuple[str, int], tuple[str, list[dict[str, Any]]]] = {}
        self.committed: dict[tuple[str, int], tuple[int, str]] = {}
        self.notes = list(noted(self.folder))

    def run(self) -> Judge:
        """Compare everything with everything; call it when no actor lives."""
        self._replay()
        self._check_writers()
        self._check_readers()
        self._check_rows("the newest snapshot", self.rows())
        return self

    def rows(self) -> list[dict[str, Any]]:
        return [{name: row[name] for name in SCHEMA.names} for row, _ in self.model.rows.values()]

    def _violated(self, text: str) -> None:
        self.violations.append(text)

    def _replay(self) -> None:
        for actor, note in self.notes:
            if "begin" in note:
                self.batches[actor, note["begin"]] = note["kind"], note["rows"]
        history = self.table.handle.history
        for slot in history.slots(0, history.head().seq):
            if slot.writes_rows and slot.seq > 1:
                self._apply(slot)
            self.counts[f"slots: {slot.operation or slot.action}, {slot.outcome}"] += 1
            self.model.remember(slot.seq)

    def _apply(self, slot: Any) -> None:
        known = self.batches.get(slot.transaction or ("", 0))
        if known is None:
            self._violated(f"slot {slot.seq} holds a write that nobody began: {slot.transaction}")
            return
        if slot.transaction in self.committed:
            self._violated(f"batch {slot.transaction} is in slots {self.committed[slot.transaction][0]} and {slot.seq}")
        self.committed[slot.transaction] = slot.seq, slot.instant
        kind, rows = known[0], [dict(row) for row in known[1]]
        if kind in ("upsert", "flagged"):
            self.model.upsert(rows, slot.seq)
        elif kind == "delete":
            self.model.delete(rows)
        elif kind == "keep":
            self.model.insert(rows, slot.seq)
        else:
            self.model.overwrite(rows, slot.seq, whole=False)

    def _check_writers(self) -> None:
        for actor, note in self.notes:
            if "error" in note:
                self._violated(f"{actor}: {note['error']}")
            elif "ok" in note:
                self.counts["commits acknowledged"] += 1
                self.counts["retries"] += note["retries"]
                self.slowest_s = max(self.slowest_s, note["seconds"])
                if self.committed.get((actor, note["ok"])) != (note["slot"], note["instant"]):
                    self._violated(f"{actor} was told ok, but its batch is not there: {note}")
            elif "failed" in note:
                self.counts[f"failed: {note['code']}"] += 1
                if (actor, note["failed"]) in self.committed:
                    self._violated(f"{actor} was told that it failed, but it is committed: {note}")
                if note["code"] not in _ALLOWED_FAILURES:
                    self._violated(f"{actor} failed in a way it must not: {note}")
            elif "unknown" in note:
                self.counts["unknown"] += 1
            elif "resolved" in note:
                self.counts["unknown, then resolved"] += 1
                if note["committed"] != ((actor, note["resolved"]) in self.committed):
                    self._violated(f"{actor} resolved its unknown commit wrongly: {note}")
            elif "again" in note:
                self.counts[f"tried again: {note['again']}"] += 1

    def _check_readers(self) -> None:
        for actor, note in self.notes:
            if "since" in note:
                self.counts["incremental reads"] += 1
                then = self.model.snapshots[note["until"]].values()
                self._same(actor, note, [row for row, slot in then if slot > note["since"]])
            elif "slot" in note and "rows" in note:
                self.counts["pinned reads" if note.get("pinned") else "snapshot reads"] += 1
                self._same(actor, note, [row for row, _ in self.model.snapshots[note["slot"]].values()])
            elif "expired" in note:
                self.counts["snapshots expired"] += 1

    def _same(self, actor: str, note: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        if fingerprint(rows) != note["rows"]:
            self._violated(f"{actor} read other rows than the replay gives: {note}")

    def _check_rows(self, what: str, wanted: list[dict[str, Any]]) -> None:
        if fingerprint(self.table.scan().to_arrow().to_pylist()) != fingerprint(wanted):
            self._violated(f"{what} differs from the replay")


def consumed_without_a_gap(folder: Path) -> bool:
    """Do the ranges that the consumer noted cover every slot from the first to the last one it reached?"""
    reached = 0
    for since, until in sorted((note["since"], note["until"]) for _, note in noted(folder) if "since" in note):
        if since > reached:
            return False
        reached = max(reached, until)
    return True
