"""Consumers, which protect unread files from cleaning.

A position is a file in the consumer's folder, whose name is the slot. It contains the first digits of the slot's
digest. The highest position is valid, so concurrent updates can only move a consumer forward. Cleaning reads the
consumers when it selects files. If a consumer is registered at a position that cleaning is about to delete, its first
read raises an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hoodoo.errors import OptionError, PositionError, SnapshotExpired
from hoodoo.redact import printable
from hoodoo.storage.store import Store
from hoodoo.timeline.history import History
from hoodoo.timeline.layout import CONSUMERS

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
_DIGITS = 20
_DIGEST_DIGITS = 16
_MAX = 10**_DIGITS - 1


@dataclass(frozen=True)
class StoredConsumer:
    """Stored name and position of a consumer.

    Attributes:
        name: The name of the consumer.
        position: The last slot that the consumer has read, or 0 if it has read nothing.
        moved_ms: The time when the position was stored, in ms since 1970, by the store's clock.
    """

    name: str
    position: int
    moved_ms: int


def check_name(name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OptionError(
            f"Consumer name {printable(name)} is invalid. Use at most 100 letters, digits, . _ and -, without a "
            "leading dot.",
            option="name",
        )
    return name


def find(store: Store, name: str) -> StoredConsumer | None:
    consumers = _among(store, f"{CONSUMERS}{check_name(name)}/")
    return consumers[0] if consumers else None


def all_of(store: Store) -> list[StoredConsumer]:
    return _among(store, CONSUMERS)


def read_commit_digest(store: Store, one: StoredConsumer) -> str:
    """Read the commit digest stored with a consumer's position.

    Returns '' if an older release stored the position, or if the consumer has advanced or was dropped.
    """
    try:
        return store.get(_key(one.name, one.position)).decode("ascii", "replace")
    except FileNotFoundError:
        return ""  # the consumer has advanced or was dropped


def register_consumer(history: History, name: str, position: int) -> StoredConsumer:
    """Register a consumer of a table.

    Raises:
        OptionError: The name is invalid.
        SnapshotExpired: The slot of a new consumer was cleaned.
    """
    store = history.store
    if existing := find(store, name):
        return existing
    try:
        store.create(_key(name, position), history.digest(position)[:_DIGEST_DIGITS].encode())
    except FileExistsError:
        return get(store, name)  # another process registered it at the same time
    if position and not history.head().readable(position):
        earliest = history.known_head().min_readable
        drop(store, name)
        raise SnapshotExpired(
            (f"Consumer cannot start at slot {position}, because the slot was cleaned. Use slot {earliest} or later."),
            earliest=earliest,
        )
    return get(store, name)


def advance(store: Store, name: str, position: int, digest: str = "") -> StoredConsumer:
    now = get(store, name)
    if position < now.position:
        raise PositionError(
            (
                f"Consumer {name!r} is at slot {now.position} and cannot go back to slot {position}. Drop the "
                "consumer, and register it again."
            ),
            position=position,
        )
    if position > now.position:
        store.write_once(_key(name, position), digest[:_DIGEST_DIGITS].encode())
        for key in _keys(store, name):
            # the previous position stays, because a concurrent listing may miss the new one
            if _position(key) < now.position:
                store.delete(key)
    return get(store, name)


def drop(store: Store, name: str) -> None:
    for key in _keys(store, check_name(name)):
        store.delete(key)
        if prune := getattr(store, "prune_folders", None):  # only local disks have empty folders
            prune(key)


def get(store: Store, name: str) -> StoredConsumer:
    consumer = find(store, name)
    if consumer is None:
        raise PositionError(f"Consumer {printable(name)} does not exist. Register it first.", consumer=printable(name))
    return consumer


def _key(name: str, position: int) -> str:
    if not 0 <= position <= _MAX:
        raise PositionError(f"Slot {position} is invalid: expected a number from 0 to {_MAX}.", position=position)
    return f"{CONSUMERS}{check_name(name)}/{position:0{_DIGITS}d}"


def _keys(store: Store, name: str) -> list[str]:
    return [key for key, _ in store.list(f"{CONSUMERS}{name}/")]


def _position(key: str) -> int:
    return int(key.rpartition("/")[2])


def _among(store: Store, folder: str) -> list[StoredConsumer]:
    newest: dict[str, str] = {}
    for key, _ in store.list(folder):
        name, _, position = key[len(CONSUMERS) :].partition("/")
        if _NAME.fullmatch(name) and re.fullmatch(rf"\d{{{_DIGITS}}}", position, re.ASCII):
            newest[name] = max(key, newest.get(name, ""))
    return [StoredConsumer(name, _position(key), store.modified_ms(key) or 0) for name, key in sorted(newest.items())]
