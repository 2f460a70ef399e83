"""Text that somebody wrote without its quotes: what to write instead. Knows the text of a condition, no columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from hoodoo.nearest import nearest
from hoodoo.redact import printable

_WORD = re.compile(r"\"(?:[^\"]|\"\")*\"|`[^`]*`|[^\s,()'\"`;]+")
_SHOWN = 100  # characters of a text that is shown corrected as a whole


def in_quotes(text: str, at: int) -> str:
    """Return `text` with the word at `at` in single quotes, or this word alone where the text is long.

    Args:
        text: The text of a condition or an expression.
        at: Where a name begins that was meant as text: a bare word, or one in double quotes.
    """
    found = _WORD.match(text, at)
    if found is None:
        return "'...'"
    word = found[0]
    quoted = as_text(word[1:-1] if word[0] in '"`' else word)
    if len(text) > _SHOWN or "\n" in text:
        return quoted
    return text[:at] + quoted + text[found.end() :]


def as_text(value: str) -> str:
    """Return the SQL literal of a text."""
    return "'" + value.replace("'", "''") + "'"


def no_column_but_text(name: str, known: Sequence[str], instead: str) -> str:
    """Return what to say of a name, none of the `known` ones, that stands where a text may stand.

    Args:
        name: The name.
        known: The columns that there are.
        instead: What to write where a text is meant.
    """
    near = nearest(name, known)
    text = f"put strings in single quotes: {instead}"
    return f"There is no column {printable(name)}; " + (
        f"did you mean {near}? If it is a string, {text}" if near else text
    )


def written_in_quotes(kind: pa.DataType) -> bool:
    """Tell whether values of a type are written in quotes: texts, dates and times."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_temporal(kind))


__all__ = ["as_text", "in_quotes", "no_column_but_text", "written_in_quotes"]
