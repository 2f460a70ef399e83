"""Every public name explains itself: its docstring has a statement first, and names each argument, result and field.

It covers what `hoodoo` exports, the types of `hoodoo.types`, and the public methods of both.
"""

import dataclasses
import inspect
import re
from typing import Any

import pytest

import hoodoo
import hoodoo.types

_SECTION = re.compile(r"^(Args|Returns|Yields|Raises|Attributes):$", re.MULTILINE)


def _names() -> dict[str, Any]:
    """Everything public by its dotted name: classes, functions, and the public methods and properties of classes."""
    found: dict[str, Any] = {}
    for module in (hoodoo, hoodoo.types, hoodoo.sources):
        for name in module.__all__:
            value = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isfunction(value)):
                continue  # an alias such as ArrowLike
            found[value.__qualname__] = value
            if inspect.isclass(value):
                found |= {f"{value.__qualname__}.{method}": of for method, of in _members(value)}
    return found


def _members(owner: type) -> list[tuple[str, Any]]:
    """The public methods and properties of a class, with those of its bases that are hoodoo's, but not its fields."""
    fields = {field.name for field in dataclasses.fields(owner)} if dataclasses.is_dataclass(owner) else set()
    found = {}
    for base in reversed(owner.__mro__):
        if base.__module__.startswith("hoodoo"):
            found |= {name: value for name, value in vars(base).items() if _is_shown(name, value)}
    return [
        (name, value.__func__ if isinstance(value, (staticmethod, classmethod)) else value)
        for name, value in found.items()
        if name not in fields
        and (inspect.isfunction(value) or isinstance(value, (staticmethod, classmethod, property)))
    ]


def _is_shown(name: str, value: Any) -> bool:
    """Tell whether users read the docstring: a public name, or how an object is made where that is documented."""
    return not name.startswith("_") or name == "__init__" and inspect.isfunction(value) and bool(value.__doc__)


NAMES = _names()


def _sections(text: str) -> dict[str, str]:
    """The text before the first section under '', and the text of each section by its name."""
    parts = _SECTION.split(text)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def _entries(text: str) -> set[str]:
    """The names that a section describes, those of a line such as `name: text`."""
    return set(re.findall(r"^    (\*{0,2}\w+): \S", text, re.MULTILINE))


def _parameters(function: Any) -> set[str]:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    named = [one for one in inspect.signature(function).parameters.values() if one.name not in ("self", "cls")]
    return {stars.get(one.kind, "") + one.name for one in named}


def _fields(owner: type) -> set[str]:
    return {field.name for field in dataclasses.fields(owner) if not field.name.startswith("_")}


def _missing(what: Any) -> list[str]:
    """What the docstring of a class, function or property lacks, in words; nothing if it is complete."""
    text = inspect.cleandoc(what.__doc__ or "")
    if not text:
        return ["a docstring"]
    sections = _sections(text)
    first = re.split(r"(?<=[.?!])\s", sections[""].strip())[0]
    found = [] if first.endswith(".") else [f"a statement as its first sentence, not {first!r}"]
    if inspect.isclass(what):
        fields = _fields(what) if dataclasses.is_dataclass(what) else set()
        described = _entries(sections.get("Attributes", ""))
        found += [f"{name!r} under Attributes:" for name in sorted(fields - described)]
    elif inspect.isfunction(what):
        found += _args(what, sections)
        returned = inspect.signature(what).return_annotation
        if returned not in (None, "None", inspect.Signature.empty) and not {"Returns", "Yields"} & sections.keys():
            found.append("a section Returns: or Yields:")
    return found


def _args(function: Any, sections: dict[str, str]) -> list[str]:
    taken, described = _parameters(function), _entries(sections.get("Args", ""))
    return [
        *(f"{name!r} under Args:" for name in sorted(taken - described)),
        *(f"no {name!r} under Args:, since it takes none" for name in sorted(described - taken)),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_explains_itself(name: str) -> None:
    missing = _missing(NAMES[name])
    assert not missing, f"The docstring of {name} needs {'; '.join(missing)}"


def test_the_test_sees_what_a_docstring_lacks() -> None:
    def function(columns: str, where: str) -> int:
        """Is anything there?

        Args:
            columns: Which.
            limit: How many.
        """
        return len(columns + where)

    assert _missing(function) == [
        "a statement as its first sentence, not 'Is anything there?'",
        "'where' under Args:",
        "no 'limit' under Args:, since it takes none",
        "a section Returns: or Yields:",
    ]

    @dataclasses.dataclass
    class Result:
        """A result.

        Attributes:
            rows: How many rows.
        """

        rows: int
        bytes: int

    assert _missing(Result) == ["'bytes' under Attributes:"]
