"""What an editor shows of public calls: each type has a name that can be imported, a docstring and a repr."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import hoodoo
from hoodoo import sources, types

CLASSES = {
    name: value
    for place in (types, sources)
    for name in place.__all__
    if isinstance(value := getattr(place, name), type)
}
_OPAQUE = {"Task"}  # travels and is called; what else it can is for those who run it


def signatures() -> Iterator[tuple[str, Any]]:
    for name in ("create", "drop", "ingest", "on_commit", "open", "register", "sql"):
        yield name, getattr(hoodoo, name)
    for owner, kind in CLASSES.items():
        if owner in _OPAQUE:
            continue
        for name, member in inspect.getmembers(kind):
            function = member.fget if isinstance(member, property) else member
            if inspect.isfunction(function) and function.__module__.startswith("hoodoo.") and name[0] != "_":
                yield f"{owner}.{name}", function


EVERY = dict(signatures())


def annotated(function: Any) -> Iterator[str]:
    signature = inspect.signature(function)
    yield from (str(one.annotation) for one in signature.parameters.values() if one.name != "self")
    yield str(signature.return_annotation)


@pytest.mark.parametrize("name", EVERY)
def test_a_public_signature_says_what_it_takes_and_gives(name: str) -> None:
    for text in annotated(EVERY[name]):
        assert not re.search(r"\bAny\b|\b_empty\b", text), text


@pytest.mark.parametrize("name", EVERY)
def test_every_type_of_ours_in_a_public_signature_can_be_imported_from_one_place(name: str) -> None:
    function = EVERY[name]
    names = vars(sys.modules[function.__module__])
    for text in annotated(function):
        for word in re.findall(r"[A-Z]\w+", text):
            found = names.get(word)
            if isinstance(found, type) and found.__module__.startswith("hoodoo."):
                is_error = issubclass(found, hoodoo.HoodooError) and getattr(hoodoo, word, None) is found
                assert is_error or issubclass(found, tuple(CLASSES.values())), f"{name}: {word}"


@pytest.mark.parametrize("name", CLASSES)
def test_every_type_that_a_user_gets_says_what_it_is(name: str) -> None:
    kind = CLASSES[name]
    assert inspect.getdoc(kind) and not inspect.getdoc(kind).startswith(f"{name}("), "a docstring of its own"
    assert kind.__repr__ is not object.__repr__ or inspect.isabstract(kind)
    members = [each.partition(".")[2] for each in EVERY if each.startswith(f"{name}.")]
    assert all(inspect.getdoc(getattr(kind, member)) for member in members)
