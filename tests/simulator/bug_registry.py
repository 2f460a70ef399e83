"""What a planted bug is: a name, the rule that it drops, and a small change of the real code, undone afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bug_seeds import SEEDS
from simulation import Scene

MOST_SEEDS = 4_000
Patch = Callable[[Any, str, Any], None]
DemoReport = Callable[[Path], None]


@dataclass(frozen=True)
class Bug:
    """`rule`: number in docs/protocol.md, or the hazard; `dropped`: what the code does instead; `scene`: what its
    histories are about. `story`: one history, which fails, of a bug that random ones come upon too seldom.
    """

    name: str
    rule: str
    dropped: str
    plant: Callable[[Patch], None]
    scene: Scene | None = None
    story: DemoReport | None = None

    @property
    def seed(self) -> int:
        """The seed that finds it; there is none of a bug with a story."""
        return SEEDS[self.name][0]

    @property
    def invariant(self) -> str:
        return SEEDS[self.name][1]


BUGS: dict[str, Bug] = {}


def bug(
    rule: str, dropped: str, scene: Scene | None = None, story: DemoReport | None = None
) -> Callable[[Callable[[Patch], None]], None]:
    def register(plant: Callable[[Patch], None]) -> None:
        name = plant.__name__.replace("_", "-")
        BUGS[name] = Bug(name, rule, dropped, plant, scene, story)

    return register


@contextmanager
def planted(one: Bug) -> Iterator[None]:
    undo: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, name: str, value: Any) -> None:
        undo.append((owner, name, owner.__dict__[name]))
        setattr(owner, name, value)

    try:
        one.plant(patch)
        yield
    finally:
        for owner, name, value in reversed(undo):
            setattr(owner, name, value)
