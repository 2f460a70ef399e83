"""Going on where a stopped run was: the tests that passed over this very tree, in a file below build/.

The tree is the commit, what differs from it and what is new beside it; any change of it begins anew.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

_VARIABLE = "HOODOO_PASSED"


def choose(root: Path, tier: str) -> None:
    """Set the file for this process and for the workers that it starts.

    Args:
        root: top of the repository.
        tier: of the run; each has a file of its own.
    """
    os.environ.setdefault(_VARIABLE, str(root / "build" / "passed" / f"{tier}-{_tree(root)}"))


def passed() -> frozenset[str]:
    """Ids of the tests that passed so far."""
    file = Path(os.environ[_VARIABLE])
    return frozenset(file.read_text("utf-8").splitlines()) if file.exists() else frozenset()


def add(test: str) -> None:
    """Keep the id of a test that passed."""
    file = Path(os.environ[_VARIABLE])
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(test + "\n")


def _tree(root: Path) -> str:
    def said(*command: str) -> bytes:
        return subprocess.run(["git", *command], cwd=root, check=True, capture_output=True).stdout

    digest = hashlib.sha256(said("rev-parse", "HEAD") + said("diff", "--binary", "HEAD"))
    for name in said("ls-files", "--others", "--exclude-standard", "-z").split(b"\0")[:-1]:
        digest.update(name + (root / os.fsdecode(name)).read_bytes())
    return digest.hexdigest()[:16]
