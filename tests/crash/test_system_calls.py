"""Every file-system call of a commit fails in turn: killed there, an input/output error, a full disk, a short write
(T2c).
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import types
from pathlib import Path
from typing import Any

import pytest
from figures import record
from memory_store import Died
from scenario import ACTIONS, Clock, build, contents, opened, require_recovery

import hoodoo.engine.local
import hoodoo.storage.local
from hoodoo.errors import HoodooError
from hoodoo.storage.local import LocalStore

CALLS = ("open", "write", "fsync", "link", "mkdir", "unlink", "replace", "scandir", "lstat", "rmdir", "close")
FAULTS = ("kill before", "kill after", "EIO", "ENOSPC", "short write")


class System:
    """Stands for the module `os`: counts the calls of a store and lets one of them fail."""

    def __init__(self, at: int = 0, fault: str = "") -> None:
        self.at, self.fault = at, fault
        self.count, self.dead, self.log = 0, False, list[str]()

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return (lambda *args, **kwargs: self._call(name, real, args, kwargs)) if name in CALLS else real

    def _call(self, name: str, real: Any, args: Any, kwargs: Any) -> Any:
        if self.dead:
            if name == "close":
                real(*args, **kwargs)  # the kernel does so
            raise Died
        self.count += 1
        self.log.append(name)
        if self.count != self.at:
            return real(*args, **kwargs)
        if self.fault == "short write":
            return real(args[0], args[1][: max(1, len(args[1]) // 2)]) if name == "write" else real(*args, **kwargs)
        if self.fault in ("EIO", "ENOSPC"):
            if name == "close":
                real(*args, **kwargs)
            raise OSError(getattr(errno, self.fault), os.strerror(getattr(errno, self.fault)))
        self.dead = True
        if self.fault == "kill after" or name == "close":
            with contextlib.suppress(OSError):  # the call failed by itself: dead is dead
                done = real(*args, **kwargs)
                if name == "scandir":
                    done.close()
        raise Died


@pytest.fixture
def start(fast_folder: Path) -> tuple[Path, int]:
    clock = Clock()
    build(LocalStore(str(fast_folder / "start")), clock)
    return fast_folder / "start", clock.ms


def run(path: Path, clock: Clock, name: str, system: Any, patch: pytest.MonkeyPatch) -> None:
    table = opened(LocalStore(str(path)), clock)
    with patch.context() as during:
        during.setattr(hoodoo.storage.local, "os", system)
        during.setattr(hoodoo.engine.local, "os", types.SimpleNamespace(cpu_count=lambda: 1))
        ACTIONS[name](table)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["upsert", "clean"])
def test_a_fault_in_any_system_call_is_a_clean_error_or_none_and_loses_nothing(
    start: tuple[Path, int], fast_folder: Path, name: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, began = start
    before = contents(opened(LocalStore(str(source)), Clock(began)))
    shutil.copytree(source, fast_folder / "after")
    whole = System()
    run(fast_folder / "after", Clock(began), name, whole, monkeypatch)
    calls = whole.count  # what is collected as garbage later may close things
    after = contents(opened(LocalStore(str(fast_folder / "after")), Clock(began + 1_000)))
    outcomes = {"done": 0, "error": 0, "killed": 0}
    for at in range(1, calls + 1):
        if fault == "short write" and whole.log[at - 1] != "write":
            continue
        path = fast_folder / str(at)
        shutil.copytree(source, path)
        try:
            run(path, Clock(began), name, System(at, fault), monkeypatch)
            outcome, allowed = "done", [after]
        except Died:
            outcome, allowed = "killed", [before, after]
        except HoodooError:
            outcome, allowed = "error", [before] if name == "upsert" else [before, after]
        outcomes[outcome] += 1
        require_recovery(
            LocalStore(str(path)), Clock(began + 5_000), allowed, name, f"{fault} at call {at} ({whole.log[at - 1]})"
        )
        shutil.rmtree(path)
    record(f"T2c {name} {fault}", calls=calls, **outcomes)
    assert sum(outcomes.values()) >= (3 if fault == "short write" else calls)
    assert outcomes["killed"] == (calls if fault.startswith("kill") else 0)
