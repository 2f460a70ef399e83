"""Exports in a simulation: each version of a Delta log and each Iceberg metadata file is held against the slot that it
names, at the moment it is put, and so is what is deleted beneath the newest ones.

Formats are read by small readers that share nothing with hoodoo's exports; what a slot's view holds the oracle tells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import delta_reader
import iceberg_reader
from oracle import Oracle
from shared_store import Objects

INVARIANT = "I14 exports"
LOG, METADATA, OVERLAYS = "_delta_log/", "metadata/", ".hoodie/.hoodoo/overlay/"
HINT, NEWEST_CHECKPOINT = METADATA + "version-hint.text", LOG + "_last_checkpoint"
EXPORTED = (LOG, METADATA + "v")
"""What the names of versions, metadata files and their hints begin with."""
FOLDERS = (LOG, METADATA, OVERLAYS)
_VERSION = re.compile(LOG + r"(\d{20})\.json")
_CHECKPOINT = re.compile(LOG + r"(\d{20})\.checkpoint\.parquet")
_METADATA_FILE = re.compile(METADATA + r"v(\d+)\.metadata\.json")
LOCATION = "sim://table/"


@dataclass
class Newest:
    """The newest version or metadata file. needs: the keys of all files that its readers open, data files too."""

    number: int = -1
    slot: int = 0
    overlays: str = ""
    needs: frozenset[str] = frozenset()


@dataclass
class Iceberg(Newest):
    """metadata: what the file says. names: the manifests and lists of all its snapshots."""

    number: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)
    names: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Seen:
    """What a version or snapshot has. files: data files. needs: every file that its readers open. rows: reads it."""

    name: str
    files: Collection[str]
    needs: frozenset[str]
    rows: Callable[[], list[dict[str, Any]]]


class ExportedViews:
    """Follows the folders of exports; whatever is wrong the oracle is told."""

    def __init__(self, objects: Objects, oracle: Oracle) -> None:
        self.objects, self.oracle = objects, oracle
        self.delta, self.iceberg = Newest(), Iceberg()
        self.versions: dict[int, delta_reader.Snapshot] = {}  # of the Delta log, all that ever were
        self.gone: set[str] = set()  # what was deleted: late requests may put it anew, and then nobody needs it
        self.checkpointed: set[int] = set()  # versions that ever had a checkpoint
        oracle.may_change += (NEWEST_CHECKPOINT, HINT, LOG)  # of the log only checkpoints: `_seen` looks at the others
        told = objects.watch

        def watch(what: str, key: str, before: bytes | None) -> None:
            told(what, key, before)
            if key.startswith(FOLDERS) and not oracle.violation:
                try:
                    self._seen(what, key, before)
                except (AssertionError, LookupError, ValueError, TypeError) as problem:
                    at = problem.__traceback__
                    while at and at.tb_next:
                        at = at.tb_next
                    where = f"{at.tb_frame.f_code.co_name} {at.tb_lineno}" if at else ""
                    oracle.wrong(INVARIANT, f"{what} {key}: {type(problem).__name__} {problem} ({where})")

        objects.watch = watch

    def _wrong(self, text: str) -> None:
        self.oracle.wrong(INVARIANT, text)

    def _seen(self, what: str, key: str, before: bytes | None) -> None:
        if what == "delete":
            self._deleted(key)
        elif found := _VERSION.fullmatch(key):
            self._put_once(key, before)
            if before is None and key not in self.gone:
                self._version(int(found[1]))
        elif found := _METADATA_FILE.fullmatch(key):
            if before is None and key not in self.gone:
                self._metadata_file(int(found[1]))
        elif found := _CHECKPOINT.fullmatch(key):
            self._checkpoint(int(found[1]))
        elif key == NEWEST_CHECKPOINT:
            assert self._hinted() in self.checkpointed, f"there was no checkpoint {self._hinted()}"
        elif key == HINT:
            number = int(self.objects.data[key])
            assert self._metadata_key(number) in self.objects.data, f"there is no metadata file {number}"
        else:
            self._put_once(key, before)

    def _put_once(self, key: str, before: bytes | None) -> None:
        if before is not None and before != self.objects.data[key]:
            self._wrong(f"{key} was replaced by other bytes")

    def _hinted(self) -> int:
        return int(json.loads(self.objects.data[NEWEST_CHECKPOINT])["version"])

    @staticmethod
    def _checkpoint_key(version: int) -> str:
        return f"{LOG}{version:020d}.checkpoint.parquet"

    @staticmethod
    def _metadata_key(number: int) -> str:
        return f"{METADATA}v{number}.metadata.json"

    def _read(self, path: str) -> bytes:
        return self.objects.data[path.removeprefix(LOCATION)]

    # ---- what each shows
    def _bases(self, slot: int) -> set[str]:
        return {group.base for group in self.oracle.groups[slot].values() if group.base}

    def _follows(self, name: str, newest: Newest, slot: int, overlays: str) -> None:
        """No slot goes back, and no view is told twice."""
        if not 1 <= slot <= self.oracle.head:
            self._wrong(f"{name} is of slot {slot}, and the newest one is {self.oracle.head}")
        elif slot < newest.slot or (slot, overlays) == (newest.slot, newest.overlays):
            self._wrong(f"{name} is of slot {slot}, and the one before of slot {newest.slot}")

    def _shows(self, seen: Seen, slot: int, merged: bool) -> None:
        """That it has the view of a slot: its base files; or with marks and overlays, its rows."""
        bases, missing = self._bases(slot), [key for key in seen.needs if key not in self.objects.data]
        of_bases = {path for path in seen.files if not path.startswith(OVERLAYS)}
        if of_bases != bases or not merged and len(seen.needs) != len(bases):
            self._wrong(
                f"{seen.name} has the files {sorted(seen.needs)}, and slot {slot} has the base files {sorted(bases)}"
            )
        elif missing and slot >= self.oracle.min_readable:
            self._wrong(f"{seen.name} of slot {slot}, which is readable, names {missing[0]}, which is not there")
        elif merged and not missing:
            self._equal(seen.name, slot, seen.rows())

    def _equal(self, name: str, slot: int, rows: list[dict[str, Any]]) -> None:
        value = self.oracle.columns.value_at(slot)
        found = sorted((f"city={row['city']}", row["id"], row["ts"], row[value]) for row in rows)
        want = sorted((*place, row.ts, row.v) for place, row in self.oracle.expected(slot).items())
        if found != want:
            self._wrong(f"{name} shows {found}, and at slot {slot} the rows are {want}")

    # ---- Delta
    def _version(self, number: int) -> None:
        data = self.objects.data[f"{LOG}{number:020d}.json"]
        assert number == self.delta.number + 1, f"the version before is {self.delta.number}"
        found = delta_reader.then(self.versions[number - 1] if number else delta_reader.Snapshot(), data)
        self.versions[number] = found
        slot, overlays = found.applications["hoodoo"], found.info.get("hoodooOverlays", "")
        assert slot == found.info["hoodooSlot"]
        name = f"version {number}"
        self._follows(name, self.delta, slot, overlays)
        seen = self._seen_of_delta(name, found)
        self.delta = Newest(number, slot, overlays, seen.needs)
        self._shows(seen, slot, bool(overlays))

    def _seen_of_delta(self, name: str, snapshot: delta_reader.Snapshot) -> Seen:
        vectors = [said["deletionVector"] for said in snapshot.files.values() if said.get("deletionVector")]
        needs = frozenset([*snapshot.files, *map(delta_reader.vector_path, vectors)])
        return Seen(name, snapshot.files, needs, lambda: delta_reader.rows(snapshot, self._read))

    def _versions_there(self) -> list[int]:
        keys = (key for key, _ in self.objects.page(LOG, "", 100_000) if key not in self.gone)
        return [int(found[1]) for key in keys if (found := _VERSION.fullmatch(key))]

    def _checkpoint(self, number: int) -> None:
        self.checkpointed.add(number)
        found, want = delta_reader.checkpoint(self.objects.data[self._checkpoint_key(number)]), self.versions[number]
        assert found.named() == want.named(), f"it has {found.named()}, and the version {want.named()}"
        assert (found.applications, found.metadata["id"]) == (want.applications, want.metadata["id"])

    def _log_from(self) -> int:
        """The oldest version that can be read from what is there; -1 where not even the newest one can."""
        there = self._versions_there()
        if not there or there != list(range(there[0], self.delta.number + 1)):
            return -1
        if there[0] == 0:
            return 0
        return next((number for number in there if self._checkpoint_key(number) in self.objects.data), -1)

    # ---- Iceberg
    def _metadata_file(self, number: int) -> None:
        assert number == self.iceberg.number + 1, f"the metadata file before is {self.iceberg.number}"
        was, metadata = self.iceberg, json.loads(self.objects.data[self._metadata_key(number)])
        properties, name = metadata["properties"], f"metadata file {number}"
        assert properties["hoodoo.version"] == str(number)
        slot, overlays = int(properties["hoodoo.slot"]), properties.get("hoodoo.overlays", "")
        self._follows(name, was, slot, overlays)
        snapshots = metadata["snapshots"]
        assert metadata["current-snapshot-id"] == snapshots[-1]["snapshot-id"], "the newest snapshot is not current"
        assert [one["snapshot-id"] for one in metadata["snapshot-log"]] == [one["snapshot-id"] for one in snapshots]
        sequences = [one["sequence-number"] for one in snapshots]
        assert sequences == sorted(set(sequences)) and sequences[-1] == metadata["last-sequence-number"]
        slots = [int(one["summary"]["hoodoo.slot"]) for one in snapshots]
        assert slots == sorted(slots) and slots[-1] <= slot, f"slots {slots} up to {slot}"
        known = {one["snapshot-id"]: one["manifest-list"] for one in was.metadata.get("snapshots", ())}
        names: set[str] = set()
        for one, at in zip(snapshots, slots, strict=True):
            names |= self._manifests(one)
            if one["snapshot-id"] in known:
                assert known[one["snapshot-id"]] == one["manifest-list"]
            else:
                self._shows(self._seen_of_iceberg(f"{name}, snapshot of slot {at}", metadata, one), at, bool(overlays))
        current = self._seen_of_iceberg(name, metadata, snapshots[-1])
        if slots[-1] < slot or snapshots[-1]["snapshot-id"] in known:  # it shows this slot, too
            self._shows(current, slot, bool(overlays))
        self.iceberg = Iceberg(number, slot, overlays, current.needs, metadata, frozenset(names))

    def _seen_of_iceberg(self, name: str, metadata: dict[str, Any], snapshot: dict[str, Any]) -> Seen:
        data, deletes = (
            {self._key(one["file_path"]) for one in iceberg_reader.entries(snapshot, content, self._read)}
            for content in (0, 1)
        )
        needs = frozenset(data | deletes)
        return Seen(name, data, needs, lambda: iceberg_reader.rows(metadata, snapshot, self._read))

    @staticmethod
    def _key(location: str) -> str:
        assert location.startswith(LOCATION)
        return location.removeprefix(LOCATION)

    def _manifests(self, snapshot: dict[str, Any]) -> set[str]:
        """The keys of the manifest list of a snapshot, and of its manifests."""
        found = iceberg_reader.records(snapshot["manifest-list"], self._read)
        keys = {self._key(snapshot["manifest-list"]), *(self._key(one["manifest_path"]) for one in found)}
        assert keys <= self.objects.data.keys(), f"there is no {sorted(keys - self.objects.data.keys())}"
        return keys

    # ---- what is deleted
    def _deleted(self, key: str) -> None:
        self.gone.add(key)
        if key.startswith(LOG):
            if self._log_from() < 0:
                self._wrong(f"{key} was deleted, and version {self.delta.number} cannot be read any more")
        elif key in self.iceberg.names or key == self._metadata_key(self.iceberg.number):
            self._wrong(f"{key} was deleted, which metadata file {self.iceberg.number} needs")
        for newest in (self.delta, self.iceberg):
            if key in newest.needs and newest.slot >= self.oracle.min_readable:
                self._wrong(f"{key} was deleted, which the newest export needs, of slot {newest.slot}")

    # ---- at the end
    def at_the_end(self, merged: bool) -> None:
        """After an export of both formats: both show the newest slot, and all that they name is there."""
        try:
            self._delta_at_the_end(merged)
            self._iceberg_at_the_end(merged)
        except (AssertionError, LookupError, ValueError, TypeError) as problem:
            self._wrong(f"at the end: {type(problem).__name__} {problem}")

    def _delta_at_the_end(self, merged: bool) -> None:
        assert self._versions_there()[-1] == self.delta.number
        if NEWEST_CHECKPOINT in self.objects.data:
            assert self._checkpoint_key(self._hinted()) in self.objects.data, f"there is no checkpoint {self._hinted()}"
        oldest = self._log_from()
        assert oldest >= 0, "the Delta log cannot be read"
        start = delta_reader.Snapshot()
        if oldest:
            start = delta_reader.checkpoint(self.objects.data[self._checkpoint_key(oldest)])
        for number in range(oldest, self.delta.number + 1):
            found = start
            if number > oldest or not oldest:
                found = delta_reader.then(start, self.objects.data[f"{LOG}{number:020d}.json"])
            assert found.named() == self.versions[number].named(), f"version {number} is read otherwise"
            seen, start = self._seen_of_delta(f"version {number}", found), found
            if number == self.delta.number:
                self._whole(seen, self.oracle.head, merged)
            else:
                overlays = self.versions[number].info.get("hoodooOverlays", "")
                self._whole(seen, found.applications["hoodoo"], bool(overlays))

    def _iceberg_at_the_end(self, merged: bool) -> None:
        metadata = self.iceberg.metadata
        assert int(self.objects.data[HINT]) == self.iceberg.number, "the hint is not the newest number"
        for one in metadata["snapshots"]:
            slot = int(one["summary"]["hoodoo.slot"])
            seen = self._seen_of_iceberg(f"the snapshot of slot {slot}", metadata, one)
            if one is metadata["snapshots"][-1]:
                self._whole(seen, self.oracle.head, merged)
            else:
                self._whole(seen, slot, any(key.startswith((OVERLAYS, METADATA)) for key in seen.needs))

    def _whole(self, seen: Seen, slot: int, merged: bool) -> None:
        """That it has the view of a slot, and that its readers find every file, with right bounds and counts."""
        missing = [key for key in seen.needs if key not in self.objects.data]
        if missing:
            self._wrong(f"{seen.name} names {missing[0]}, which is not there")
            return
        self._shows(seen, slot, merged)
        rows = len(seen.rows())
        if not merged and rows != sum(self.oracle.added[path]["rows"] for path in self._bases(slot)):
            self._wrong(f"{seen.name} has {rows} rows")
