"""Does this store keep the one promise commits rest on? Two puts and a delete tell.

Of seven S3-compatible servers tried, three answered 200 to a second `If-None-Match: *` and overwrote.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

from hoodoo.errors import StoreRefused
from hoodoo.storage.store import Store

_PROBES = ".hoodie/.hoodoo/probe/"


class Check(NamedTuple):
    name: str
    passed: bool


def probe(store: Store) -> list[Check]:
    """Try the store under a fresh random key and leave nothing behind; one Check per promise."""
    key = _PROBES + secrets.token_hex(16)
    checks = []
    try:
        store.put_if_absent(key, b"first")
        checks.append(Check("a new key can be created", True))
        try:
            store.put_if_absent(key, b"second")
            refused = False
        except FileExistsError:
            refused = True
        checks.append(Check("a second put-if-absent of a key is refused", refused))
        checks.append(Check("the refused put changed nothing", store.get(key) == b"first"))
        checks.append(Check("a new key is listed at once", any(found == key for found, _ in store.list(_PROBES))))
        checks.append(Check("a range of bytes can be read", store.get_range(key, 1, 3) == b"irs"))
    finally:
        store.delete(key)
    checks.append(Check("a deleted key is gone at once", not store.exists(key)))
    return checks


def require_conforming(store: Store) -> None:
    """Raise StoreRefused, naming the promise, if `store` cannot carry commits."""
    for check in probe(store):
        if not check.passed:
            raise StoreRefused(f"{store.uri}: this store fails the check {check.name!r}, so two writers could both believe they won. Use another store.", check=check.name)
