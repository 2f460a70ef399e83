"""Rules and suggestions for column names.

A table's columns are stored as an Avro schema, and Avro restricts names. Callers reject or replace invalid names.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from hoodoo.errors import SchemaError
from hoodoo.redact import printable

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
"""Pattern for valid Avro names of fields and symbols."""
RESERVED = "_hoodie_"
"""Prefix of names that Hudi reserves, in any case."""
_LETTER = re.compile(r"LATIN (?:SMALL|CAPITAL) (?:LETTER|LIGATURE) (?:SHARP )?([A-Z]+)\b")
_WORD_ENDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class InvalidColumnName(NamedTuple):
    """Invalid column name with a suggestion.

    Attributes:
        path: The path of the column for error messages: 's.f', 'list[].f' or 'map{}.f'.
        suggested: The suggested name.
    """

    path: str
    suggested: str


def is_valid_avro_name(name: str) -> bool:
    return NAME.match(name) is not None


def suggest_names(names: Sequence[str], beside: Collection[str] = ()) -> dict[str, str]:
    """Suggest valid names for columns.

    Only names that are invalid in Avro get a suggestion. Suggested names are unique, in snake case and with ASCII
    letters.

    Args:
        names: The names of the columns, or of the fields of one struct.
        beside: Other existing names at this level.
    """
    suggested = dict[str, str]()
    taken = {name.lower() for name in (*names, *beside) if is_valid_avro_name(name)}
    for number, name in enumerate(names, 1):
        if is_valid_avro_name(name) or name in suggested:
            continue
        plain = unique = _to_snake_case(name) or f"column_{number}"
        repeats = 1
        while unique in taken:
            repeats += 1
            unique = f"{plain}_{repeats}"
        taken.add(unique)
        suggested[name] = unique
    return suggested


def find_invalid_names(
    fields: Iterable[pa.Field], around: str = "", beside: Collection[str] = ()
) -> Iterator[InvalidColumnName]:
    """Find columns and fields with invalid names.

    Args:
        fields: The columns, or the fields of one struct.
        around: The prefix of the names in error messages.
        beside: Other existing names at this level.
    """
    fields = list(fields)
    suggested = suggest_names([field.name for field in fields], beside)
    for field in fields:
        path = around + field.name
        if field.name in suggested:
            yield InvalidColumnName(path, suggested[field.name])
        yield from misnamed_struct_fields(field.type, path)


def misnamed_struct_fields(kind: pa.DataType, path: str) -> Iterator[InvalidColumnName]:
    if pa.types.is_struct(kind):
        yield from find_invalid_names(kind, f"{path}.")
    elif pa.types.is_map(kind):
        yield from misnamed_struct_fields(kind.item_type, f"{path}{{}}")
    elif pa.types.is_dictionary(kind):
        yield from misnamed_struct_fields(kind.value_type, path)
    elif pa.types.is_nested(kind) and kind.num_fields == 1:  # a list of any layout
        yield from misnamed_struct_fields(kind.field(0).type, f"{path}[]")


def require_valid_names(found: Iterable[InvalidColumnName]) -> None:
    invalid = list(found)
    if not invalid:
        return
    listed = ", ".join(f"{printable(column.path)} (suggested name: {column.suggested})" for column in invalid)
    plural = len(invalid) > 1
    raise SchemaError(
        f"Column name{'s' if plural else ''} invalid: {listed}. Names must consist of letters, digits and _, and must "
        f"not start with a digit. Rename {'them' if plural else 'it'}, or call hoodoo.create(..., "
        'rename="snake") (--rename snake), which renames columns and accepts both names afterwards.',
        column=invalid[0].path,
        columns=[column.path for column in invalid],
        suggested={column.path: column.suggested for column in invalid},
    )


def _to_snake_case(name: str) -> str:
    # The result is '' if no letter or digit has an ASCII form.
    plain = "".join(map(_to_ascii_letter, unicodedata.normalize("NFKD", name)))
    words = re.sub(r"[^A-Za-z0-9]+", "_", _WORD_ENDS.sub("_", plain)).strip("_").lower()
    return f"_{words}" if words[:1].isdigit() else words


def _to_ascii_letter(char: str) -> str:
    if char.isascii():
        return char
    if unicodedata.combining(char):
        return ""
    if char == "ß":
        return "ss"
    letter = _LETTER.match(unicodedata.name(char, ""))
    if letter is None:
        return " "
    return letter[1].lower() if char.islower() else letter[1].capitalize()


__all__ = [
    "NAME",
    "RESERVED",
    "InvalidColumnName",
    "is_valid_avro_name",
    "find_invalid_names",
    "misnamed_struct_fields",
    "require_valid_names",
    "suggest_names",
]
