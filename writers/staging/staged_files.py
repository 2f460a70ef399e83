"""Staged files, which are temporary Arrow files of Spark tasks.

A file has at least one record batch per partition path. The batches of a partition are in order of key hash. A task
that needs one partition and one range of hashes reads only the matching batches.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from hoodoo.errors import EngineError
from hoodoo.format.names import RECORD_KEY
from hoodoo.format.rows import compact, take_rows
from hoodoo.storage.store import Store
from hoodoo.timeline.layout import STAGING
from hoodoo.writers.batches.batch import Batch, BatchTerms

# larger partitions are staged in ranges of hashes, so that each routing task only reads its own range
_CUT_BYTES = 32 << 20
CUTS = 64
"""Number of hash ranges of a large partition, a power of two like the number of routing tasks."""
_HASH_MAX = (1 << 64) - 1
PARTITION, HASH, _DELETE = "#partition", "#hash", "#delete"
"""Extra columns of staged rows, with a `#` that names of table columns cannot contain."""
KEY = "#key"
"""Extra column with the record key of a merge source row, whose other columns may have any name."""


def new_folder() -> str:
    return f"{STAGING}{secrets.token_hex(16)}/"


def discard(store: Store, folder: str) -> None:
    for key, _ in list(store.list(folder)):
        store.delete(key)


@dataclass(frozen=True)
class TemporaryRowFile:
    """Temporary Arrow file with rows.

    They belong to one partition. `order` is the position of the rows among all rows of the DataFrame.
    """

    key: str
    number: int
    partition: str
    rows: int
    bytes: int
    order: tuple[int, int] = (0, 0)
    low: int = 0
    high: int = _HASH_MAX

    def read(self, store: Store) -> pa.Table:
        with store.open_input(self.key) as source:
            table = pa.Table.from_batches([pa.ipc.open_file(source).get_batch(self.number)])
        return table.set_column(
            table.schema.get_field_index(PARTITION), PARTITION, table[PARTITION].dictionary_encode()
        )


def to_table(batch: Batch) -> pa.Table:
    return marked(batch.rows, batch)


def marked(rows: pa.Table, batch: Batch) -> pa.Table:
    paths = pa.DictionaryArray.from_arrays(pa.array(batch.codes), pa.array(batch.partitions, pa.string()))
    return (
        rows.append_column(PARTITION, paths)
        .append_column(HASH, pa.array(batch.hashes))
        .append_column(_DELETE, pa.array(batch.delete))
    )


def without_staging_columns(table: pa.Table) -> pa.Table:
    return table.drop_columns([name for name in (PARTITION, HASH, _DELETE, KEY) if name in table.schema.names])


def marked_with_keys(rows: pa.Table, keys: Batch) -> pa.Table:
    return marked(rows.append_column(KEY, keys.rows[RECORD_KEY]), keys)


def to_batch(table: pa.Table, terms: BatchTerms) -> Batch:
    codes, partitions = _partition_codes(table)
    rows = compact(without_staging_columns(table))
    return Batch(rows, table[HASH].to_numpy(), partitions, codes, table[_DELETE].to_numpy().astype(bool), terms)


def _partition_codes(table: pa.Table) -> tuple[np.ndarray, list[str]]:
    if not len(table):
        return np.array([], np.int32), []
    paths = table[PARTITION].unify_dictionaries().combine_chunks()
    return paths.indices.to_numpy().astype(np.int32), paths.dictionary.to_pylist()


def stage(store: Store, folder: str, table: pa.Table, order: tuple[int, int]) -> list[TemporaryRowFile]:
    row_codes, partitions = _partition_codes(table)
    order_ = np.lexsort((table[HASH].to_numpy(), row_codes))
    codes, starts = np.unique(row_codes[order_], return_index=True)
    parts, piece_fields = [], []
    for code, positions in zip(codes.tolist(), np.split(order_, starts[1:]), strict=True):
        part = take_rows(table, positions)
        for low, high in ranges(CUTS if part.nbytes > _CUT_BYTES else 1):
            cut = in_range(part, low, high)
            if len(cut):
                parts.append(cut)
                piece_fields.append({"partition": partitions[code], "order": order, "low": low, "high": high})
    return [
        replace(piece, **fields)
        for piece, fields in zip(write_batches(store, folder, parts), piece_fields, strict=True)
    ]


def ranges(count: int) -> list[tuple[int, int]]:
    edges = [(1 << 64) * i // count for i in range(count + 1)]
    return [(low, high - 1) for low, high in zip(edges, edges[1:], strict=False)]


def write_batches(store: Store, folder: str, parts: Sequence[pa.Table]) -> list[TemporaryRowFile]:
    if not parts:
        return []
    key = folder + secrets.token_hex(16)
    plain = [
        part.set_column(part.schema.get_field_index(PARTITION), PARTITION, part[PARTITION].cast(pa.string()))
        for part in parts
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, plain[0].schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        for part in plain:
            writer.write_batch(_one_batch(part))
    store.put_if_absent(key, sink.getvalue(), durable=False)
    return [TemporaryRowFile(key, number, "", len(part), part.nbytes) for number, part in enumerate(plain)]


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise EngineError(
            f"A batch of {len(table)} staged rows contains too much text: expected at most 2 GiB. "
            "Write the DataFrame in several parts."
        )
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def in_range(table: pa.Table, low: int, high: int) -> pa.Table:
    hashes = table[HASH].to_numpy()
    start, end = (
        np.searchsorted(hashes, np.array([low], np.uint64))[0],
        np.searchsorted(hashes, np.array([high], np.uint64), side="right")[0],
    )
    return table.slice(int(start), int(end - start))
