"""Search for the nearest known name to a misspelled name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SHOWN = 20  # maximum number of names in an error message
_READ = 100  # number of characters to compare


def find_nearest_name(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """Find the nearest (most similar) name, ignoring case.

    Args:
        name: The name to search for.
        known: The existing names.
        likeness: The minimum similarity, from 0 to 1.

    Returns:
        The most similar name, or None if no name is similar enough.
    """
    there = list(known)
    plain = {one.lower(): one for one in reversed(there)}
    if name in there:
        return name
    found = difflib.get_close_matches(name[:_READ].lower(), plain, 1, likeness)
    return plain[found[0]] if found else None


def suggest_name(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """Suggest the most similar name for an unknown name."""
    there = list(known)
    near = find_nearest_name(name, there, likeness)
    if near:
        return f"did you mean {near}?"
    return f"expected one of: {join_names(there)}." if there else "there are no names to choose from."


def join_names(known: Iterable[str]) -> str:
    """Join at most 20 names with commas."""
    there = list(known)
    more = len(there) - _SHOWN
    return ", ".join(there[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def sort_by_similarity(name: str, known: Iterable[str]) -> list[str]:
    def unlike(one: str) -> float:
        return -difflib.SequenceMatcher(None, name[:_READ].lower(), one.lower()).ratio()

    return sorted(known, key=unlike)


__all__ = ["sort_by_similarity", "suggest_name", "join_names", "find_nearest_name"]
