"""Data files that exported metadata describes.

It finds the data files whose column bounds are in the metadata. All stored Delta and Iceberg metadata files are
searched, not only current ones.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import fastavro

from hoodoo.exports.delta import log
from hoodoo.exports.iceberg import metadata_files
from hoodoo.exports.iceberg.manifest_files import table_location_uri
from hoodoo.format.parquet.small import read_small
from hoodoo.storage.store import Store


def find_described_files(store: Store) -> Iterator[tuple[str, set[str] | None]]:
    """Find the data files that exported metadata describes.

    Yields each metadata file with the data files whose column bounds it contains. These are Delta versions, Delta
    checkpoints and Iceberg manifests. Paths are relative to the table. The second value is None for a metadata file
    that cannot be read.
    """
    base = table_location_uri(store) + "/"
    for folder in (log.FOLDER, metadata_files.FOLDER):
        for key, _ in list(store.list(folder)):
            if not key.endswith((".json", ".parquet") if folder == log.FOLDER else ".avro"):
                continue
            try:
                data = store.get(key)
            except FileNotFoundError:
                continue
            try:
                yield key, _delta_paths(key, data) if folder == log.FOLDER else _iceberg_paths(data, base)
            except Exception:  # damaged bytes raise various errors in the three decoders
                yield key, None


def _delta_paths(key: str, data: bytes) -> set[str]:
    if key.endswith(".parquet"):
        table = read_small(data)
        added = table["add"].to_pylist() if "add" in table.column_names else []
    else:
        added = [json.loads(line).get("add") for line in data.splitlines() if line.strip()]
    return {unquote(action["path"]) for action in added if action and action.get("stats")}


def _iceberg_paths(data: bytes, base: str) -> set[str]:
    entries: list[Any] = [
        entry.get("data_file") for entry in fastavro.reader(io.BytesIO(data)) if isinstance(entry, dict)
    ]
    return {
        entry["file_path"].removeprefix(base)
        for entry in entries
        if entry and (entry.get("lower_bounds") or entry.get("upper_bounds"))
    }
