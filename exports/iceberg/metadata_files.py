"""Metadata files of an exported Iceberg table.

The layout is that of Iceberg's Hadoop tables: `v<N>.metadata.json` with consecutive N, and a hint with the newest N.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress

from hoodoo.exports.iceberg.iceberg_schema import Json
from hoodoo.storage.store import Store

FOLDER = "metadata/"
HINT = FOLDER + "version-hint.text"
_METADATA = re.compile(r"v(\d+)\.metadata\.json")
_AVRO = re.compile(r"(?:snap-\d+-\d+|manifest-\d+|overlay-\d+)-[0-9a-f]{12}\.avro")
_DELETES = re.compile(r"deletes-([0-9a-f]{32})-[0-9a-f]{12}\.(?:parquet|puffin)")
_DAY_MS = 24 * 3600 * 1000


def metadata_key(version: int) -> str:
    return f"{FOLDER}v{version}.metadata.json"


def is_iceberg_metadata_name(name: str) -> bool:
    return FOLDER + name == HINT or any(pattern.fullmatch(name) for pattern in (_METADATA, _AVRO, _DELETES))


def find_newest_metadata(store: Store) -> tuple[int, Json | None]:
    """Find the newest Iceberg metadata file.

    Returns its number and its contents. The contents are None if the file is not valid JSON. As in Iceberg, the search
    starts at the version hint and goes upwards.
    """
    version = hinted(store)
    if version <= 0 or not store.exists(metadata_key(version)):
        numbers = [int(value[1]) for name in store.names(FOLDER) if (value := _METADATA.fullmatch(name))]
        version = max(numbers, default=0)
    while version and store.exists(metadata_key(version + 1)):
        version += 1
    if not version:
        return 0, None
    with suppress(ValueError):
        value = json.loads(store.get(metadata_key(version)))
        return version, value if isinstance(value, dict) else None
    return version, None


def hinted(store: Store) -> int:
    with suppress(FileNotFoundError, ValueError):
        return int(store.get(HINT))
    return 0


def delete_unused_metadata(
    store: Store, version: int, kept: int, named: Iterable[str], passed: Callable[[str], bool], now_ms: int
) -> None:
    """Delete Iceberg metadata files that no snapshot uses.

    Files of other writers and files younger than a day stay. Iceberg's own maintenance is disabled, because it would
    also delete base files.

    Args:
        store: The store of the table.
        version: The number of the newest metadata file.
        kept: The number of metadata files to keep.
        named: The paths of all manifests and manifest lists of the kept snapshots.
        passed: Returns whether no kept snapshot uses the overlay with a given name.
        now_ms: The current time in ms since 1970.
    """
    needed = {key.removeprefix(FOLDER) for key in named}
    for name in store.names(FOLDER):
        number = _METADATA.fullmatch(name)
        deletes = _DELETES.fullmatch(name)
        if number:
            is_old = int(number[1]) <= version - kept
        else:
            is_old = passed(deletes[1]) if deletes else bool(_AVRO.fullmatch(name)) and name not in needed
        if is_old and (store.modified_ms(FOLDER + name) or now_ms) < now_ms - _DAY_MS:
            store.delete(FOLDER + name)
