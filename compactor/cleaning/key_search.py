"""Search for keys in data files.

Index entries narrow down the files to read, and the contents of the files decide. The search compares keys, not only
hashes. A file that cannot be read counts as containing the keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hoodoo.engine.local import LocalEngine
from hoodoo.errors import CorruptTable, UnsupportedTable
from hoodoo.format.log import change_log_block
from hoodoo.format.log.block import DataBlock, DeleteBlock, decode_log
from hoodoo.format.names import PARTITION_PATH, RECORD_KEY, LogFileName, parse_data_file
from hoodoo.format.parquet import base_file
from hoodoo.format.parquet.statistics import has_comparable_bounds
from hoodoo.index import KeyIndex, index_of
from hoodoo.readers.changes.change_log_reader import keys_of
from hoodoo.storage.store import Store
from hoodoo.timeline.layout import INDEX
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.slots.keyset import intersect
from hoodoo.writers.batches.batch import Batch
from hoodoo.writers.staging.staged_files import KEY as STAGED_KEY
from hoodoo.writers.staging.staged_files import PARTITION as STAGED_PARTITION

_KEY_ONLY = pa.schema([pa.field(RECORD_KEY, pa.string())])
_KEY_AND_PARTITION = pa.schema([pa.field(RECORD_KEY, pa.string()), pa.field(PARTITION_PATH, pa.string())])
_ARROW_MAGIC, _PARQUET_MAGIC = b"ARROW1", b"PAR1"


@dataclass(frozen=True)
class WantedKeys:
    """Wanted record keys of one partition.

    The hashes are sorted.
    """

    keys: pa.Array
    hashes: np.ndarray


def group_keys_by_partition(batch: Batch) -> dict[str, WantedKeys]:
    keys_by_partition = {}
    for code in np.unique(batch.codes).tolist():
        positions = np.flatnonzero(batch.codes == code)
        keys = batch.rows[RECORD_KEY].take(pa.array(positions)).combine_chunks()
        keys_by_partition[batch.partitions[code]] = WantedKeys(keys, np.unique(batch.hashes[positions]))
    return keys_by_partition


@dataclass
class KeySearch:
    """Search for record keys in data files, with cached results."""

    store: Store
    index: KeyIndex
    keys: dict[str, WantedKeys]
    config: TableConfig
    _known: dict[str, bool] = field(default_factory=dict)

    def find_files_with_keys(self, files: Iterable[tuple[str, str, str]]) -> set[str]:
        """Find the files that contain the keys.

        Only keys of the file's partition count, in rows and in deletes. `files` contains the path, partition and index
        entry of each file to search.
        """
        searched = [file for file in files if file[1] in self.keys]
        unknown = [
            (path, partition)
            for path, partition, index in searched
            if path not in self._known and self._may_contain_keys(path, partition, index)
        ]
        self._known.update({path: False for path, _, _ in searched if path not in self._known})
        self._known.update(
            zip(
                (path for path, _ in unknown),
                LocalEngine().map(lambda file: self.file_contains_keys(*file), unknown),
                strict=True,
            )
        )
        return {path for path, _, _ in searched if self._known[path]}

    def _may_contain_keys(self, path: str, partition: str, index: str) -> bool:
        # The result is False only if the index entry proves that the file contains no wanted key. Index entries of log
        # files contain only the deleted keys.
        if not index or isinstance(parse_data_file(path.rpartition("/")[2]), LogFileName):
            return True
        try:
            return intersect(self.keys[partition].hashes, self.index.key_hashes(index))
        except CorruptTable:
            return True

    def file_contains_keys(self, path: str, partition: str) -> bool:
        """Check whether a file contains any of the keys."""
        keys = self.keys[partition].keys
        try:
            return any(pc.any(pc.is_in(chunk, value_set=keys), min_count=0).as_py() for chunk in self._keys_of(path))
        except FileNotFoundError:
            return False
        except (CorruptTable, UnsupportedTable):
            return self.store.exists(path)

    def cached_result(self, path: str) -> bool | None:
        return self._known.get(path)

    def read_rows_with_keys(self, path: str, partition: str) -> Iterator[pa.Table]:
        """Read the rows with the given keys.

        Nested columns are left out. Yields no rows for an unreadable file.
        """
        keys = self.keys[partition].keys
        name = parse_data_file(path.rpartition("/")[2])
        with suppress(FileNotFoundError, CorruptTable, UnsupportedTable, pa.ArrowException):
            if not isinstance(name, LogFileName):
                with self.store.open_input(path) as source:
                    file = pq.ParquetFile(source)
                    for rows in file.iter_batches(
                        columns=[column.name for column in file.schema_arrow if has_comparable_bounds(column.type)]
                    ):
                        table = pa.table(rows)
                        yield table.filter(pc.is_in(table[RECORD_KEY], value_set=keys))
            elif not name.cdc:
                for block in decode_log(self.store.get(path)):
                    if isinstance(block, DataBlock):
                        texts = block.rows[RECORD_KEY].cast(pa.string())
                        yield block.rows.filter(pc.is_in(texts, value_set=keys))

    def _keys_of(self, path: str) -> list[pa.Array]:
        parsed = parse_data_file(path.rpartition("/")[2])
        if not isinstance(parsed, LogFileName):
            with self.store.open_input(path) as source:
                return list(base_file.read_base_file(source, path, _KEY_ONLY)[RECORD_KEY].chunks)
        data = self.store.get(path)
        if parsed.cdc:
            return [
                chunk
                for block in change_log_block.decode_changes(data)
                for chunk in keys_of(block.rows, self.config).chunks
            ]
        chunks: list[pa.Array] = []
        for block in decode_log(data, columns=[RECORD_KEY]):
            if isinstance(block, DataBlock):
                chunks += block.rows[RECORD_KEY].cast(pa.string()).chunks
            elif isinstance(block, DeleteBlock):
                chunks.append(block.keys.cast(pa.string()))
        return chunks

    def _keys_in_bytes(self, data: bytes) -> pa.Array:
        return pa.array([key for key in self._texts().to_pylist() if key.encode() in data], pa.string())

    def temporary_file_contains_keys(self, path: str) -> bool:
        """Check whether a temporary file contains any of the keys.

        An unfinished file counts as containing a key. A file that is neither Parquet nor Arrow contains a key if its
        bytes contain the key as text. In an Arrow file without partition paths, keys of any partition count.
        """
        try:
            data = self.store.get(path)
            if data.startswith(_PARQUET_MAGIC):
                rows = base_file.read_base_file(pa.BufferReader(data), path, _KEY_AND_PARTITION)
                return self._contains_keys(rows[RECORD_KEY], rows[PARTITION_PATH])
            if not data.startswith(_ARROW_MAGIC):
                return len(self._keys_in_bytes(data)) > 0
            table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
            key_columns = [name for name in (STAGED_KEY, RECORD_KEY) if name in table.schema.names]
            if not key_columns:
                return False
            paths = table[STAGED_PARTITION] if STAGED_PARTITION in table.schema.names else None
            return self._contains_keys(table[key_columns[0]].cast(pa.string()), paths)
        except FileNotFoundError:
            return False
        except (pa.ArrowInvalid, CorruptTable):
            return True

    def _contains_keys(self, keys: pa.ChunkedArray, partitions: pa.ChunkedArray | None) -> bool:
        # Without `partitions`, keys of any partition count.
        if partitions is None:
            return bool(pc.any(pc.is_in(keys, value_set=self._texts()), min_count=0).as_py())
        paths = partitions.cast(pa.string())
        return any(
            pc.any(pc.and_(pc.equal(paths, name), pc.is_in(keys, value_set=wanted_keys.keys)), min_count=0).as_py()
            for name, wanted_keys in self.keys.items()
        )

    def _texts(self) -> pa.Array:
        return pa.concat_arrays([wanted_keys.keys for wanted_keys in self.keys.values()])

    def find_index_entries_with_keys(self, file_ids: Mapping[str, str]) -> set[str]:
        """Find index entries that contain the keys.

        Keys are compared as text. The same text in another partition is a different key. `file_ids` maps file ids to
        partitions.
        """
        texts = {name: set(wanted_keys.keys.to_pylist()) for name, wanted_keys in self.keys.items()}
        entries = set()
        for key, _ in self.store.list(INDEX):
            partition = file_ids.get(key[len(INDEX) :].rpartition("_")[0])
            if partition in texts and not key.endswith(".deleted"):
                try:
                    if index_of(self.store).contains_key_text(key, texts[partition]):
                        entries.add(key)
                except CorruptTable:
                    continue
        return entries
