"""Kills a real process at every line, or every bytecode, of an operation on a real disk, and looks at what is left.

Run as a program: `killed_process.py lines|opcodes OPERATION FOLDER EVERY [s3]`; prints one JSON object. For each place
(every tenth if EVERY is 10) in the traced code that the operation reaches, a fork runs the operation on a copy of the
table and kills itself there with SIGKILL when it first gets to it. States on disk that look alike are checked once. It
forks, so it runs in a process of its own, without threads.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

os.cpu_count = lambda: 1  # type: ignore[assignment]  # tasks run in this thread, which is the traced one

from scenario import ACTIONS, Clock, build, contents, opened, require_recovery  # noqa: E402

from hoodoo.storage.local import LocalStore  # noqa: E402

ROOMS = {"lines": ("timeline", "compactor", "storage", "writers"), "opcodes": ("timeline",)}
FILES = {"opcodes": ("transaction.py", "publish.py", "history.py", "watermark.py")}
Place = tuple[CodeType, int]


class ListingStore(LocalStore):
    """A disk that is looked at as S3 is: slots are found by listing after a key."""

    lists_by_prefix = True


def traced(what: str) -> Callable[[CodeType], bool]:
    here = Path(__file__).parents[2]
    rooms, files = tuple(str(here / room) + os.sep for room in ROOMS[what]), FILES.get(what)
    linked = tuple(str(here / "hoodoo" / room) + os.sep for room in ROOMS[what])

    def is_traced(code: CodeType) -> bool:
        return code.co_filename.startswith((*rooms, *linked)) and (
            files is None or code.co_filename.rpartition(os.sep)[2] in files
        )

    return is_traced


def walk(what: str, visit: Callable[[Place], None], run: Callable[[], Any]) -> None:
    """Run with `visit` called at every line or bytecode of the traced code."""
    wanted = traced(what)

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if not wanted(frame.f_code):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = what == "lines", what == "opcodes"
        if event == "line":
            visit((frame.f_code, frame.f_lineno))
        elif event == "opcode":
            visit((frame.f_code, frame.f_lasti))
        return trace

    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(None)


def copy(start: Path, to: Path) -> None:
    """Files of a table never change, so links to them are as good as copies; what may be replaced is copied."""
    shutil.copytree(
        start,
        to,
        copy_function=lambda a, b: shutil.copy(a, b) if a.endswith((".properties", "_version_")) else os.link(a, b),
    )


def killed_at(place: Place, what: str, path: Path, run: Callable[[], Any]) -> bool:
    """Fork; was the child killed at `place`? False: it ended without coming there."""
    child = os.fork()
    if child == 0:

        def visit(at: Place) -> None:
            if at == place:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            walk(what, visit, run)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def looks(path: Path) -> tuple[Any, ...]:
    """What is on disk, without the times and random names that differ from run to run."""

    def plain(name: str) -> str:
        return re.sub(r"[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f-]{27}|\d{17}", "#", name)

    return tuple(
        sorted(
            (plain(str(file.relative_to(path))), file.stat().st_size if "tmp" in file.parts else 0)
            for file in path.rglob("*")
            if file.is_file()
        )
    )


def main(what: str, name: str, folder: Path, every: int, like_s3: bool) -> dict[str, int]:
    clock = Clock()
    kind = ListingStore if like_s3 else LocalStore
    start = folder / "start"
    build(kind(str(start)), clock)
    began = clock.ms
    before = contents(opened(kind(str(start)), Clock(began)))

    def act(path: Path) -> None:
        ACTIONS[name](opened(kind(str(path)), Clock(began)))

    copy(start, folder / "first")
    act(folder / "first")  # imports what the operation needs: the lines of a module are run once in a process
    copy(start, folder / "after")
    places: dict[Place, None] = {}
    walk(what, lambda place: places.setdefault(place), lambda: act(folder / "after"))
    after = contents(opened(kind(str(folder / "after")), Clock(began + 1_000)))
    kills, seen = 0, set()
    chosen = list(places)[::every]
    for number, place in enumerate(chosen):
        path = folder / str(number)
        copy(start, path)
        kills += killed_at(place, what, path, lambda path=path: act(path))  # type: ignore[misc]
        state = looks(path)
        if state not in seen:
            seen.add(state)
            require_recovery(
                kind(str(path)), Clock(began + 5_000), [before, after], name, f"at {place[0].co_qualname}:{place[1]}"
            )
        shutil.rmtree(path)
    return {"places": len(chosen), "kills": kills, "states": len(seen)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), sys.argv[5:] == ["s3"])))
