"""Quoting of strings and column names."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from hoodoo.format.sql_tokens import TOKEN
from hoodoo.nearest import find_nearest_name
from hoodoo.redact import printable

_WORD = re.compile(r"\"(?:[^\"]|\"\")*\"|`[^`]*`|[^\s,()'\"`;]+")
_SHOWN = 100  # maximum length of a condition that is shown in full with the correction


def quote_word_at(text: str, at: int) -> str:
    """Put single quotes around a word of a condition.

    If the text is long, the result is only the quoted word.

    Args:
        text: The text of a condition or an expression.
        at: The start of a word that was meant as a string: a bare word, or a word in double quotes.
    """
    match = _WORD.match(text, at)
    if match is None:
        return "'...'"
    word = match[0]
    quoted = as_text(word[1:-1] if word[0] in '"`' else word)
    if len(text) > _SHOWN or "\n" in text:
        return quoted
    return text[:at] + quoted + text[match.end() :]


def as_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def unquoted_string_error(name: str, columns: Sequence[str], instead: str) -> str:
    suggestion = find_nearest_name(name, columns)
    advice = f"put strings in single quotes: {instead}"
    return f"There is no column {printable(name)}; " + (
        f"did you mean {suggestion}? If it is a string, {advice}" if suggestion else advice
    )


def has_quoted_literals(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_temporal(kind))


def quote_column_names(text: str, names: Sequence[str]) -> str:
    """Put double quotes around column names.

    Names before a parenthesis or next to a dot stay unchanged.
    """
    tokens = [(token.lastgroup, token[0]) for token in TOKEN.finditer(text)]
    solid = [(at, kind, word) for at, (kind, word) in enumerate(tokens) if kind != "space"]
    words = [word for _, word in tokens]
    bare = {*names, *(name.partition(".")[2] for name in names)}  # a name of two rows is source.at or target.at
    for before, (at, kind, word), after in zip([None, *solid], solid, [*solid[1:], None], strict=False):
        is_free = (before is None or before[1] != "dot") and (after is None or after[2] != "(")
        if kind == "word" and word in bare and is_free:
            words[at] = f'"{word}"'
    return "".join(words)


__all__ = ["as_text", "quote_word_at", "unquoted_string_error", "quote_column_names", "has_quoted_literals"]
