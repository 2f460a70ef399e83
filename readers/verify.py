"""Checks a whole table against itself: the chain of slots, every file's bytes, keys, index entries, publication. Changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow.compute as pc

from hoodoo.errors import HoodooError
from hoodoo.format.hashing import hash64
from hoodoo.format.keys import partition_paths
from hoodoo.format.names import PARTITION_PATH, RECORD_KEY
from hoodoo.index.entry import EntryReader
from hoodoo.readers import slices
from hoodoo.storage.store import digest
from hoodoo.timeline.config import TableConfig
from hoodoo.timeline.history import History
from hoodoo.timeline.layout import slot_key
from hoodoo.timeline.publish import final_key
from hoodoo.timeline.view import FileGroup, View


@dataclass(frozen=True)
class Problem:
    """code: what kind; file: where; text: what is wrong, in words."""

    code: str
    file: str
    text: str


@dataclass
class Report:
    """What was looked at, and everything that is wrong; `ok` if nothing is."""

    slots: int = 0
    files: int = 0
    bytes: int = 0
    rows: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems


class Verifier:
    def __init__(self, history: History, config: TableConfig) -> None:
        self.history, self.store, self.config = history, history.store, config
        self.entries = EntryReader(self.store)  # its own: a cache could hide damage
        self.report = Report()

    def run(self) -> Report:
        """Check everything; the report lists all problems found, not only the first."""
        try:
            view = self.history.head()
        except HoodooError as problem:
            self._add(problem.code, str(problem.details.get("file", "")), problem.message)
            return self.report
        self._chain(view)
        for partition in view.partitions:
            self._partition(partition, list(view.groups([partition])))
        return self.report

    def _add(self, code: str, file: str, text: str) -> None:
        self.report.problems.append(Problem(code, file, text))

    def _chain(self, view: View) -> None:
        fresh, before = History(self.store), ""
        for seq in range(1, view.seq + 1):
            try:
                slot, sha = fresh._read(seq)
            except HoodooError as problem:
                self._add("SLOT", slot_key(seq), problem.message)
                return
            if slot.prev != before:
                self._add("CHAIN", slot_key(seq), f"slot {seq} does not follow slot {seq - 1}: the sequence was forked or a slot replaced")
            before = sha
            self.report.slots += 1
            if not self.store.exists(final_key(slot)):
                self._add("UNPUBLISHED", final_key(slot), f"slot {seq} is not published; Hudi's readers do not see it. Open the table to heal it.")

    def _partition(self, partition: str, groups: list[FileGroup]) -> None:
        seen: list[np.ndarray] = []
        for group in groups:
            if self._bytes(group):
                rows = self._rows(group)
                if rows is not None:
                    seen.append(rows)
        if seen:
            hashes = np.sort(np.concatenate(seen))
            twice = int((hashes[1:] == hashes[:-1]).sum())
            if twice:
                self._add("DUPLICATE_KEY", partition, f"{twice} record keys of partition {partition!r} occur more than once")

    def _bytes(self, group: FileGroup) -> bool:
        sound = True
        for entry in group.files():
            file = entry.file
            self.report.files += 1
            try:
                data = self.store.get(file.path)
            except FileNotFoundError:
                self._add("MISSING_FILE", file.path, "the file is missing")
                sound = False
                continue
            self.report.bytes += len(data)
            if len(data) != file.size or digest(data) != file.digest:
                self._add("DAMAGED_FILE", file.path, "the bytes do not fit the size and digest in the slot")
                sound = False
        return sound

    def _rows(self, group: FileGroup) -> np.ndarray | None:
        """Hashes of the live keys; checks partition and index entry on the way."""
        try:
            columns = list(dict.fromkeys([RECORD_KEY, PARTITION_PATH, *self.config.partition_by]))
            rows = slices.read_slice(self.store, self.config, group, slices.schema_of(self.config, columns))
            self._index(group)
        except HoodooError as problem:
            self._add(problem.code, str(problem.details.get("file", "")), problem.message)
            return None
        self.report.rows += len(rows)
        path = group.base.file.path if group.base else group.logs[0].file.path
        paths = partition_paths(rows, self.config.partition_by, self.config.hive_style, self.config.url_encode)
        if len(rows) and not pc.all(pc.equal(paths.dictionary, group.partition)).as_py():
            self._add("WRONG_PARTITION", path, f"rows of another partition lie in {group.partition!r}")
        return hash64(rows[RECORD_KEY])

    def _index(self, group: FileGroup) -> None:
        if group.base is None:
            return
        file = group.base.file
        keys = slices.read_base(self.store, file, slices.schema_of(self.config, [RECORD_KEY]))[RECORD_KEY]
        if not np.array_equal(self.entries.hashes(file.index), np.sort(hash64(keys))):
            self._add("INDEX", file.index, f"the index entry does not hold exactly the keys of {file.path}")
