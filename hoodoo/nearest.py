"""Which of the names that there are somebody may have meant by one that there is not. Knows words only."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SHOWN = 20  # names that an error lists at most
_READ = 100  # characters of a name that are compared


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """Return the one of `known` that is most like `name`; upper and lower case are alike.

    Args:
        name: What somebody wrote.
        known: The names that there are.
        likeness: From 0 to 1: how much alike they have to be.

    Returns:
        The name, or None if none is like it.
    """
    there = list(known)
    plain = {one.lower(): one for one in reversed(there)}
    if name in there:
        return name
    found = difflib.get_close_matches(name[:_READ].lower(), plain, 1, likeness)
    return plain[found[0]] if found else None


def hint(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """Return the sentence that follows "There is no ... `name`; ": the name that is meant, or those that there are."""
    there = list(known)
    near = nearest(name, there, likeness)
    return f"did you mean {near}?" if near else f"there are {listed(there)}."


def listed(known: Iterable[str]) -> str:
    """Return names for an error: the first ones, and how many more there are."""
    there = list(known)
    more = len(there) - _SHOWN
    return ", ".join(there[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def by_likeness(name: str, known: Iterable[str]) -> list[str]:
    """Return the names that there are, those most like `name` first."""

    def unlike(one: str) -> float:
        return -difflib.SequenceMatcher(None, name[:_READ].lower(), one.lower()).ratio()

    return sorted(known, key=unlike)


__all__ = ["by_likeness", "hint", "listed", "nearest"]
