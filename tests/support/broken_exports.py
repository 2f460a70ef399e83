"""Exports that end at a store write, or are overtaken there."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exported import check_hint
from faulty_store import Died, FaultyStore

import hoodoo
from hoodoo.exports import export as exporting
from hoodoo.storage.store import Store

Fault = Callable[[int, str, str], str | None]
Check = Callable[[Path], Any]


def run(path: Path, store: Store | None = None, **more: Any) -> Any:
    """An export of both formats through a store of its own."""
    handle = hoodoo.open(path).handle
    config, history, view = handle.look()
    now_ms = handle.environment.now_ms()
    formats = {"delta": True, "iceberg": True} | more
    return exporting.export_table(store or handle.store, history, config, view, now_ms, **formats)


def faulty(path: Path, fault: Fault) -> FaultyStore:
    store = FaultyStore(str(path))
    store.fault, store.pause = fault, lambda seconds: None  # type: ignore[method-assign]
    return store


def ended_at_each_write(history: Path, tmp_path: Path, kind: str, check: Check, **more: Any) -> int:
    """End an export of a copy of `history` at its first write, then one at its second, and so on; after each run
    another one, and check what it left. Returns how many there were.
    """
    for number in itertools.count(1):
        path = tmp_path / str(number)
        shutil.copytree(history, path)
        store = faulty(path, lambda at, operation, key, number=number: kind if at == number else None)  # type: ignore[misc]
        try:
            run(path, store, **more)
            ended = store.count < number
        except (Died, hoodoo.StoreUnavailable):
            ended = False
        run(path, **more)
        check(path)
        check_hint(path)
        shutil.rmtree(path)
        if ended:
            return number
    raise AssertionError


def overtaken_at_each_write(history: Path, tmp_path: Path, overtake: Check, check: Check, **more: Any) -> int:
    """Let `overtake` run before the first write of an export of a copy of `history`, then before the second, and so on;
    check what is there, and once more after another export. Returns how many there were.
    """
    for number in itertools.count(1):
        path = tmp_path / str(number)
        shutil.copytree(history, path)

        def overtaken(at: int, operation: str, key: str, number: int = number, path: Path = path) -> None:
            if at == number:
                overtake(path)

        store = faulty(path, overtaken)
        run(path, store, **more)
        check(path)
        run(path, **more)
        check(path)
        check_hint(path)
        shutil.rmtree(path)
        if store.count < number:
            return number
    raise AssertionError
