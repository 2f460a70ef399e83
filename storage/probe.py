"""Probe that tests a store's guarantees.

The test uses new random keys, and deletes them at the end. Of seven S3-compatible servers that were tested, three
answered 200 to a second put with `If-None-Match: *` and overwrote the object. One let two concurrent writers succeed.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from hoodoo.errors import BucketNotFound, CredentialsError, HoodooError, StoreRefused, StoreUnavailable, TryAgainError
from hoodoo.storage.store import Store

PROBES = ".hoodie/.hoodoo/probe/"
_ATTEMPTS = 5
_RACES, _KEYS = 3, 4  # two threads per key, because some servers delay a third thread by a second
_LARGE = 1 << 20
_READ_AGAIN_S = 0.001
_conforming: set[str] = set()  # identities and file systems of stores that passed in this process


class PromiseResult(NamedTuple):
    name: str
    passed: bool


class _Probe:
    # Each method tests one guarantee and returns whether the store meets it.

    def __init__(self, store: Store) -> None:
        self.store = store
        self.folder = f"{PROBES}{secrets.token_hex(16)}/"
        self.key = self.folder + "b"
        self.made = {self.key}

    def _name(self, name: str) -> str:
        self.made.add(self.folder + name)
        return self.folder + name

    def created(self) -> bool:
        if not _absent(self.store.get, self.key):
            return False
        self.store.put_if_absent(self.key, b"first")
        return self.store.get(self.key) == b"first"  # must not return a cached "not found" response

    def refused(self) -> bool:
        try:
            self.store.put_if_absent(self.key, b"second")
        except FileExistsError:
            return True
        return False

    def unchanged(self) -> bool:
        return self.store.get(self.key) == b"first"

    def one_winner(self) -> bool:
        return all(
            self._has_one_winner_each([self._name(f"race-{number}-{which}") for which in range(_KEYS)])
            for number in range(_RACES)
        )

    def _has_one_winner_each(self, keys: list[str]) -> bool:
        # A thread whose outcome is unknown may have succeeded.
        won: dict[str, list[bytes]] = {key: [] for key in keys}
        unknown: dict[str, list[bytes]] = {key: [] for key in keys}
        refusals = dict[str, HoodooError]()
        barrier = threading.Barrier(2 * len(keys))

        def create(key: str, name: bytes) -> None:
            barrier.wait()
            try:
                self.store.put_if_absent(key, name)
                won[key].append(name)
            except FileExistsError:
                return
            except HoodooError as problem:
                unknown[key].append(name)
                if not isinstance(problem, TryAgainError):
                    refusals[key] = problem

        threads = [threading.Thread(target=create, args=(key, name)) for key in keys for name in (b"one", b"two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for key in keys:
            if not won[key] and unknown[key] and not self.store.exists(key):
                silent = StoreUnavailable(
                    f"Store did not respond to any request to create {key!r}. Check that it is running.", key=key
                )
                raise refusals.get(key, silent)
        return all(len(won[key]) <= 1 and self.store.get(key) in (won[key] or unknown[key]) for key in keys)

    def appears_whole(self) -> bool:
        return self._is_write_atomic(self._name("new"), self.store.put_if_absent, b"")

    def replaced_whole(self) -> bool:
        key, before = self._name("old"), b"1" * _LARGE
        self.store.put(key, before)
        return self._is_write_atomic(key, self.store.put, before)

    def _is_write_atomic(self, key: str, put: Callable[[str, bytes], object], before: bytes) -> bool:
        after, contents, failures = b"2" * _LARGE, set[bytes](), list[Exception]()

        def write() -> None:
            try:
                put(key, after)
            except Exception as problem:  # raised by the calling thread
                failures.append(problem)

        writer = threading.Thread(target=write)
        writer.start()
        while writer.is_alive():
            with contextlib.suppress(FileNotFoundError, StoreUnavailable):
                contents.add(self.store.get(key))
            time.sleep(_READ_AGAIN_S)
        writer.join()
        if failures:
            raise failures[0]
        return contents <= ({before, after} if before else {after}) and self.store.get(key) == after

    def listed(self) -> bool:
        first, last = self._name("a"), self._name("c")
        for key in (last, first):
            self.store.put_if_absent(key, b"1")
        own = (first, self.key, last)
        entries = [entry for entry in self.store.list(self.folder) if entry[0] in own]
        later_entries = [entry for entry in self.store.list(self.folder, first) if entry[0] in own]
        return entries == [(first, 1), (self.key, 5), (last, 1)] and later_entries == entries[1:]

    def ranges(self) -> bool:
        with self.store.open_input(self.key) as source:
            through_arrow = source.size(), bytes(source.read_at(3, 1))
        return (self.store.get_range(self.key, 1, 3), self.store.size(self.key), through_arrow) == (
            b"irs",
            5,
            (5, b"irs"),
        )

    def replaced(self) -> bool:
        for data in (b"again", b"and again"):
            self.store.put(self.key, data)
            if (self.store.get(self.key), self.store.size(self.key)) != (data, len(data)):
                return False
        return True

    def deleted(self) -> bool:
        self.store.delete(self.key)
        unlisted = all(key != self.key for key, _ in self.store.list(self.folder))
        return unlisted and not self.store.exists(self.key) and _absent(self.store.get, self.key)

    def tidy(self) -> None:
        for key in self.made:
            self.store.delete(key)
        prune = getattr(self.store, "prune_folders", None)  # only local disks have folders
        if prune:
            prune(self.key)


def _absent(read: Callable[[str], Any], key: str) -> bool:
    try:
        read(key)
    except FileNotFoundError:
        return True
    return False


_FIRST: dict[str, Callable[[_Probe], bool]] = {
    "a new key can be created": _Probe.created,
    "a second put-if-absent of a key is refused": _Probe.refused,
    "the refused put changed nothing": _Probe.unchanged,
}
_MORE: dict[str, Callable[[_Probe], bool]] = {
    "of several that create a key at once exactly one wins": _Probe.one_winner,
    "a new key appears whole or not at all": _Probe.appears_whole,
    "a key is replaced whole or not at all": _Probe.replaced_whole,
    "a new key is listed at once": _Probe.listed,
    "a range of bytes can be read": _Probe.ranges,
    "a replaced key reads as new at once": _Probe.replaced,
}
_LAST: dict[str, Callable[[_Probe], bool]] = {"a deleted key is gone at once": _Probe.deleted}


def probe_store(store: Store, briefly: bool = False) -> list[PromiseResult]:
    """Probe a store, to test its guarantees.

    Args:
        store: The store to test.
        briefly: True only tests the guarantees that prevent two writers from overwriting each other. Default False.

    Raises:
        StoreUnavailable: The store did not respond after several attempts.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return _probe(store, _FIRST | _LAST if briefly else _FIRST | _MORE | _LAST)
        except StoreUnavailable:
            if attempt + 1 == _ATTEMPTS:
                raise
            time.sleep(0.05 * 2**attempt)
    raise AssertionError("unreachable")


def _probe(store: Store, promises: dict[str, Callable[[_Probe], bool]]) -> list[PromiseResult]:
    run, checks = _Probe(store), []
    try:
        for name, test in promises.items():
            try:
                passed = test(run)
            except (FileNotFoundError, FileExistsError):
                passed = False
            checks.append(PromiseResult(name, passed))
    except (BucketNotFound, CredentialsError):
        run.made.clear()  # deleting the test keys would fail too
        raise
    finally:
        with contextlib.suppress(StoreUnavailable):
            run.tidy()
    return checks


def require_safe_store(store: Store, briefly: bool = False) -> None:
    """Check that a store is safe for commits.

    Raises StoreRefused if a guarantee is missing. If another store on the same file system has passed all tests in this
    process, only a brief test is run.
    """
    medium = f"{type(store).__qualname__} on {store.medium}" if store.medium else ""
    for check in probe_store(store, briefly or medium in _conforming):
        if not check.passed:
            raise StoreRefused(
                (f"Store {store.uri} fails the check {check.name!r}, so commits could be lost. Use another store."),
                check=check.name,
            )
    _conforming.add(store.identity)
    if medium and not briefly:
        _conforming.add(medium)


def require_safe_server(store: Store) -> None:
    """Test a storage server before the first write.

    The server may have been replaced, or put behind a proxy, after the table was created. A local disk is not tested
    again.
    """
    if store.changes_unseen and store.identity not in _conforming:
        require_safe_store(store, briefly=True)
