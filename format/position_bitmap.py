"""Encoding of row positions as a Roaring bitmap.

The portable form is specified in github.com/RoaringBitmap/RoaringFormatSpec. A log block contains the base row
positions of its records in base64 (docs/format.md 10.6). The n-th record belongs to the n-th set bit. The bytes of the
bitmap are the content of a deletion vector in Delta. hoodoo writes array and bitmap containers, and also reads run
containers.
"""

from __future__ import annotations

import base64
import binascii
import struct

import numpy as np

from hoodoo.errors import CorruptTable

_COOKIE, _COOKIE_RUNS = 12346, 12347
_ARRAY_MAX = 4096
_BITMAP_BYTES = 8192
_CONTAINERS_MAX = 1 << 16
_OFFSETS_FROM = 4  # minimum number of containers for which a bitmap with runs contains offsets


def encode_roaring64(rows: np.ndarray) -> bytes:
    values = rows.astype(np.uint32)
    if not len(values):
        return struct.pack("<q", 0)
    keys, starts, counts = np.unique(values >> 16, return_index=True, return_counts=True)
    low = (values & 0xFFFF).astype("<u2")
    pieces = [_encode_container(low[start : start + count]) for start, count in zip(starts, counts, strict=True)]
    sizes = np.array([len(piece) for piece in pieces])
    offsets = (8 + 8 * len(keys) + np.cumsum(sizes) - sizes).astype("<u4")
    heads = np.stack([keys, counts - 1], axis=1).astype("<u2")
    front = struct.pack("<qiii", 1, 0, _COOKIE, len(keys))
    return b"".join((front, heads.tobytes(), offsets.tobytes(), *pieces))


def encode_positions(rows: np.ndarray) -> str:
    return base64.b64encode(encode_roaring64(rows)).decode()


def _encode_container(low: np.ndarray) -> bytes:
    if len(low) <= _ARRAY_MAX:
        return low.tobytes()
    bits = np.zeros(1 << 16, np.uint8)
    bits[low] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def decode_positions(text: str) -> np.ndarray:
    try:
        data = base64.b64decode(text, validate=True)
        (buckets,) = struct.unpack_from("<q", data)
        at, parts = 8, [np.empty(0, np.int64)]
        if not 0 <= buckets <= len(data):
            raise ValueError(f"the bitmap has an invalid number of parts, {buckets}")
        for _ in range(buckets):
            (high,) = struct.unpack_from("<I", data, at)
            low, at = _decode_bitmap(data, at + 4)
            parts.append((high << 32) + low)
        rows = np.concatenate(parts)
        if at != len(data) or (np.diff(rows) <= 0).any():
            raise ValueError("the row positions are not in ascending order")
    except (ValueError, struct.error, binascii.Error) as problem:
        raise CorruptTable(
            f"Row positions of a log block are damaged: {problem}. Restore the file from a backup."
        ) from None
    return rows


def _decode_bitmap(data: bytes, at: int) -> tuple[np.ndarray, int]:
    (cookie,) = struct.unpack_from("<I", data, at)
    at += 4
    runs = np.zeros(_CONTAINERS_MAX, bool)
    if with_runs := cookie & 0xFFFF == _COOKIE_RUNS:
        count = (cookie >> 16) + 1
        flags = np.frombuffer(data, np.uint8, (count + 7) // 8, at)
        runs, at = np.unpackbits(flags, bitorder="little").astype(bool), at + len(flags)
    elif cookie == _COOKIE:
        (count,) = struct.unpack_from("<I", data, at)
        at += 4
    else:
        raise ValueError("the bytes are not a Roaring bitmap")
    if count > _CONTAINERS_MAX:
        raise ValueError(f"the bitmap has an invalid number of containers, {count}")
    heads = np.frombuffer(data, "<u2", 2 * count, at).reshape(count, 2).astype(np.int64)
    at += 4 * count + (0 if with_runs and count < _OFFSETS_FROM else 4 * count)
    parts = [np.empty(0, np.int64)]
    for (key, last), run in zip(heads.tolist(), runs[:count].tolist(), strict=True):
        low, at = _decode_container(data, at, last + 1, run)
        if len(low) != last + 1:
            raise ValueError("the number of row positions differs from the header")
        parts.append((key << 16) + low)
    return np.concatenate(parts), at


def _decode_container(data: bytes, at: int, count: int, run: bool) -> tuple[np.ndarray, int]:
    if run:
        (runs,) = struct.unpack_from("<H", data, at)
        pairs = np.frombuffer(data, "<u2", 2 * runs, at + 2).reshape(runs, 2).astype(np.int64)
        steps = np.repeat(pairs[:, 0] - np.concatenate([[0], np.cumsum(pairs[:-1, 1] + 1)]), pairs[:, 1] + 1)
        low = steps + np.arange(len(steps))
        if len(low) and low[-1] > 0xFFFF:
            raise ValueError("a run of rows exceeds its container")
        return low, at + 2 + 4 * runs
    if count <= _ARRAY_MAX:
        return np.frombuffer(data, "<u2", count, at).astype(np.int64), at + 2 * count
    bits = np.frombuffer(data, np.uint8, _BITMAP_BYTES, at)
    return np.flatnonzero(np.unpackbits(bits, bitorder="little")), at + _BITMAP_BYTES


__all__ = ["decode_positions", "encode_positions"]
