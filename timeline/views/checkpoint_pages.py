"""Pages in the checkpoint files of large tables.

Layout: pages, each a Parquet file with the files of some adjacent partitions; pages of superseded files, each JSON
compressed with zstd; the directory; digest of the directory (32 hex digits), its length (u64, little endian),
`HDPAGES1`.

The directory is a Parquet file with a row per partition (its page, its totals). Its footer contains the other parts of
the view, and the offsets, sizes and digests of all pages, as JSON. A page whose partitions did not change is copied
from the previous checkpoint.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hoodoo.errors import CorruptTable
from hoodoo.format.parquet.small import read_small
from hoodoo.storage.store import Store, digest
from hoodoo.timeline.slots.shape import matches_types
from hoodoo.timeline.views.checkpoint_rows import (
    files_table,
    known_state,
    partitions_of,
    state_of,
    superseded_of,
    superseded_rows,
    view_of,
)
from hoodoo.timeline.views.file_group import ReplacedFile
from hoodoo.timeline.views.pages import CheckpointPages, PagedFiles, PagedPartitions
from hoodoo.timeline.views.totals import CountedFiles, FileTotals
from hoodoo.timeline.views.view import View

MAGIC = b"HDPAGES1"
TRAILER = struct.Struct("<32sQ8s")
_PAGE_FILES, _PAGE_SUPERSEDED = 1024, 8192
_STATE = b"hoodoo.state"
_PAGE_SPAN = (int, int, str)  # offset, size in bytes, digest
_NUMBERS = ("groups", "base_bytes", "log_bytes", "bytes_behind")
_DIRECTORY = pa.schema(
    [pa.field("partition", pa.string()), pa.field("page", pa.int64())]
    + [pa.field(name, pa.int64()) for name in _NUMBERS]
    + [pa.field("by_logs", pa.string()), pa.field("by_size", pa.string())]
)


# ---------------------------------------------------------------- write


def encode(view: View) -> bytes:
    sink = _PageWriter()
    names = list[str]()
    numbers = list[int]()
    for partitions, data in _iter_pages(view):
        numbers += [len(sink.spans)] * len(partitions)
        names += partitions
        sink.add(data())
    files, sink.spans = sink.spans, []
    counts = list[int]()
    for part in _superseded_parts(view.superseded):
        counts.append(len(part))
        sink.add(_compress_json(superseded_rows(part)))
    order = sorted(range(len(names)), key=names.__getitem__)
    each = [view.totals_of(names[index]) for index in order]
    columns: dict[str, list[Any]] = {
        "partition": [names[index] for index in order],
        "page": [numbers[index] for index in order],
        **{name: [getattr(one, name) for one in each] for name in _NUMBERS},
        "by_logs": [_pairs(one.by_logs) for one in each],
        "by_size": [_pairs(one.by_size) for one in each],
    }
    together = view.totals
    state = state_of(view) | {
        "pages": files,
        "superseded_pages": sink.spans,
        "superseded_counts": counts,
        "totals": [getattr(together, name) for name in _NUMBERS],
        "by_logs": _pairs(together.by_logs),
        "by_size": _pairs(together.by_size),
    }
    text = json.dumps(state, separators=(",", ":")).encode()
    directory = _parquet(pa.table(columns, schema=_DIRECTORY).replace_schema_metadata({_STATE: text}))
    sink.parts += [directory, TRAILER.pack(digest(directory).encode(), len(directory), MAGIC)]
    return b"".join(sink.parts)


class _PageWriter:
    def __init__(self) -> None:
        self.parts, self.spans, self.at = list[bytes](), list[tuple[int, int, str]](), 0

    def add(self, data: bytes) -> None:
        self.spans.append((self.at, len(data), digest(data)))
        self.parts.append(data)
        self.at += len(data)


def _iter_pages(view: View) -> Iterator[tuple[list[str], Callable[[], bytes]]]:
    pending, files = list[str](), 0
    paged = view.partitions if isinstance(view.partitions, PagedPartitions) else None
    copied = _copyable_pages(paged) if paged else {}
    copied_names = {name for names in copied.values() for name in names}
    for number, names in copied.items():
        assert paged is not None
        yield names, partial(paged.pages.stored, number)
    for partition in sorted(name for name in view.partitions if name not in copied_names):
        totals = view.totals_of(partition)
        count = totals.bases + totals.logs
        if pending and files + count > _PAGE_FILES:
            yield pending, partial(_page, view, pending)
            pending, files = [], 0
        pending, files = [*pending, partition], files + count
    if pending:
        yield pending, partial(_page, view, pending)


def _copyable_pages(known: PagedPartitions) -> dict[int, list[str]]:
    names = dict[int, list[str]]()
    for partition, number in zip(known.pages.partitions, known.pages.numbers, strict=True):
        names.setdefault(number, []).append(partition)
    changed = {known.pages.number_of(partition) for partition in known.changed}
    return {number: partitions for number, partitions in names.items() if number not in changed}


def _page(view: View, partitions: Sequence[str]) -> bytes:
    return _parquet(files_table(view.groups(partitions)))


def _superseded_parts(files: Sequence[ReplacedFile]) -> Iterator[list[ReplacedFile]]:
    part = list[ReplacedFile]()
    for file in files:
        part.append(file)
        if len(part) == _PAGE_SUPERSEDED:
            yield part
            part = []
    if part:
        yield part


def _pairs(counts: Any) -> str:
    return json.dumps(sorted(counts.items()), separators=(",", ":"))


def _compress_json(value: Any) -> bytes:
    text = json.dumps(value, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + pa.compress(text, "zstd", asbytes=True)


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data


# ---------------------------------------------------------------- read


def is_paged(end: bytes) -> bool:
    return end.endswith(MAGIC)


def read(store: Store, key: str) -> View:
    try:
        with store.open_input(key) as source:
            size = source.size()
            stored_digest, length, magic = TRAILER.unpack(source.read_at(TRAILER.size, max(0, size - TRAILER.size)))
            if magic != MAGIC or length > size - TRAILER.size:
                raise ValueError("the file is not a paged checkpoint")
            directory = bytes(source.read_at(length, size - TRAILER.size - length))
            if digest(directory).encode() != stored_digest:
                raise ValueError("the digest of the checkpoint does not match")
            return _view(store, key, source, read_small(directory))
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as problem:
        raise CorruptTable(f"Checkpoint {key} is damaged: {problem}. Restore it from a backup.", file=key) from None


def _view(store: Store, key: str, source: pa.NativeFile, directory: pa.Table) -> View:
    state = known_state((directory.schema.metadata or {})[_STATE], key)
    spans, old, counts = state["pages"], state["superseded_pages"], state["superseded_counts"]
    is_known = (
        matches_types(spans, [_PAGE_SPAN])
        and matches_types(old, [_PAGE_SPAN])
        and matches_types(counts, [int])
        and len(old) == len(counts)
    )
    if not is_known or directory.schema.remove_metadata() != _DIRECTORY:
        raise ValueError("the directory of the checkpoint is invalid")
    columns = {name: directory[name].to_pylist() for name in _DIRECTORY.names}
    names, numbers = columns["partition"], columns["page"]
    if names != sorted(set(names)) or not all(0 <= number < len(spans) for number in numbers):
        raise ValueError("the partitions of a checkpoint page are not sorted")
    pages = CheckpointPages(names, numbers, [span[2] for span in spans], _PageLoader(store, key, spans))
    partitions = PagedPartitions(pages, {}, state["seq"])
    rows = zip(*(columns[name] for name in (*_NUMBERS, "by_logs", "by_size")), strict=True)
    each = {name: _totals(row) for name, row in zip(names, rows, strict=True)}
    counted = CountedFiles(partitions, _totals([*state["totals"], state["by_logs"], state["by_size"]]), each)
    # kept in memory, because cleaning may delete the checkpoint
    packed = [_checked(bytes(source.read_at(size, offset)), said) for offset, size, said in old]
    superseded = PagedFiles(counts, partial(_superseded, packed)) if counts else ()
    return view_of(state, partitions, superseded, _counted=counted)


def _totals(row: Sequence[Any]) -> FileTotals:
    groups, base_bytes, log_bytes, behind, by_logs, by_size = row
    return FileTotals(groups, base_bytes, log_bytes, behind, _parse_counts(by_logs), _parse_counts(by_size))


@lru_cache(maxsize=4096)
def _parse_counts(text: str) -> Mapping[int, int]:
    return dict(json.loads(text))


class _PageLoader:
    def __init__(self, store: Store, key: str, spans: Sequence[tuple[int, int, str]]) -> None:
        self._store, self._key, self._spans = store, key, spans

    def stored(self, number: int) -> bytes:
        return _stored(self._store, self._key, self._spans[number])

    def __call__(self, number: int) -> dict[str, dict[str, Any]]:
        data = self.stored(number)
        try:
            return partitions_of(read_small(data))
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
            raise CorruptTable(
                f"Checkpoint {self._key} is damaged: {problem}. Restore it from a backup.", file=self._key
            ) from None


def _stored(store: Store, key: str, span: tuple[int, int, str]) -> bytes:
    offset, size, stored_digest = span
    try:
        data = store.get_range(key, offset, size)
    except FileNotFoundError:
        raise CorruptTable(
            f"Checkpoint {key} was deleted after it was first read. Open the table again.", file=key
        ) from None
    try:
        return _checked(data, stored_digest)
    except ValueError as problem:
        raise CorruptTable(f"Checkpoint {key} is damaged: {problem}. Restore it from a backup.", file=key) from None


def _checked(data: bytes, stored_digest: str) -> bytes:
    if digest(data) != stored_digest:
        raise ValueError("the contents of a checkpoint page do not match its digest")
    return data


def _superseded(pages: Sequence[bytes], number: int) -> Sequence[ReplacedFile]:
    data = pages[number]
    text = pa.decompress(data[8:], int.from_bytes(data[:8], "little"), "zstd", asbytes=True)
    return superseded_of(json.loads(text))


__all__ = ["encode", "is_paged", "read"]
