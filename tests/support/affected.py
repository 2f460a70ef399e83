"""Which folders of the deep tier a change needs. Run as a program it prints those of the changes since `main`.

BASE names another commit to compare with.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable

FOLDERS: dict[str, tuple[str, ...]] = {
    "timeline": ("crash", "model", "simulator", "timeline"),
    "format": ("fuzz", "schema", "crash"),
    "compactor": ("soak", "crash", "compactor"),
    "engine": ("spark_kill",),
    "sources": ("ingestion", "kafka"),
    "ingestion": ("ingestion", "kafka"),
}
"""Of rooms whose faults show elsewhere than in their rows."""
OTHERS = ("schema", "table", "readers", "writers")


def affected(files: Iterable[str]) -> list[str]:
    """Folders of `tests/` that changed files ask for.

    Args:
        files: paths from the top of the repository.

    Returns:
        Paths of folders, sorted; [] if nothing that runs was changed.
    """
    found: set[str] = set()
    for file in files:
        room, _, rest = file.partition("/")
        if room == "tests":
            found.update({rest.partition("/")[0]} & _folders())
        elif file.endswith(".py") and room not in ("bench", "examples", "tools"):
            found.update(FOLDERS.get(room, OTHERS))
    return sorted(f"tests/{name}" for name in found)


def _folders() -> set[str]:
    """Those of the deep tier: tests of interop run in an environment of their own."""
    return {
        entry.name
        for entry in os.scandir("tests")
        if entry.is_dir() and entry.name not in ("data", "interop", "support")
    }


def _changed(base: str) -> list[str]:
    def lines(*command: str) -> list[str]:
        return subprocess.run(["git", *command], check=True, capture_output=True, text=True).stdout.splitlines()

    [begin] = lines("merge-base", base, "HEAD")
    return lines("diff", "--name-only", begin) + lines("ls-files", "--others", "--exclude-standard")


if __name__ == "__main__":
    print(*affected(_changed(os.environ.get("BASE", "main"))) or ["tests/test_package.py"])
