"""Codec for Java properties files.

This module handles escapes, comments and the table checksum. Facts: docs/format.md sections 3.1, 3.2 and 8.1. The
grammar is that of `java.util.Properties.load`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping

from hoodoo.errors import CorruptTable, OptionError

NAME = "hoodie.table.name"
DATABASE = "hoodie.database.name"
CHECKSUM = "hoodie.table.checksum"

SIZE_CAP = 16 << 20
"""Maximum bytes of a properties file, which may contain the Avro schema of a table."""

_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_TRAILING_BACKSLASHES = re.compile(r"\\+$")
_KEY_END = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPES = {
    "\\": "\\\\",
    "\t": "\\t",
    "\n": "\\n",
    "\r": "\\r",
    "\f": "\\f",
    "=": "\\=",
    ":": "\\:",
    "#": "\\#",
    "!": "\\!",
}
_SPECIAL = re.compile(r"[\\=:#!]|[^ -~]")


def parse_properties(data: bytes) -> dict[str, str]:
    """Parse a Java properties file.

    Raises CorruptTable for an invalid escape, for an unpaired surrogate, and for more than `SIZE_CAP` bytes.
    """
    if len(data) > SIZE_CAP:
        raise CorruptTable(
            f"Properties file is too large: expected at most {SIZE_CAP:,} bytes, got {len(data):,}. Restore it from a "
            "backup.",
            bytes=len(data),
        )
    return dict(_split_key_value(line) for line in _logical_lines(data.decode("iso-8859-1")))


def format_properties(values: Mapping[str, str], stamp: str) -> bytes:
    """Format a Java properties file.

    The properties are sorted by key. Raises OptionError for an unpaired surrogate.
    """
    lines = [f"#Properties saved on {_on_one_line(stamp)}", f"#{_on_one_line(stamp)}"]
    lines += [f"{_escape(key, is_key=True)}={_escape(values[key])}" for key in sorted(values)]
    return ("\n".join(lines) + "\n").encode("ascii")


def checksum(database: str, table: str) -> str:
    return str(zlib.crc32(f"{database}.{table}".encode()))


def check(values: Mapping[str, str]) -> None:
    stored = values.get(CHECKSUM)
    expected = checksum(values.get(DATABASE, ""), values.get(NAME, ""))
    if stored is not None and stored != expected:
        raise CorruptTable(
            f"Checksum in hoodie.properties is wrong: expected {expected}, got {stored!r}. The file was damaged or "
            "edited manually. Restore it from a backup.",
            stored=stored,
            expected=expected,
        )


def create_partition_metadata(instant: str, depth: int, stamp: str) -> bytes:
    """Create Hudi's metadata file of a partition.

    The file contains the instant that first wrote to the partition, and the number of path segments (0 for the table's
    root).
    """
    return f"#partition metadata\n#{_on_one_line(stamp)}\ncommitTime={instant}\npartitionDepth={depth}\n".encode(
        "ascii"
    )


def _logical_lines(text: str) -> list[str]:
    # A line with an odd number of backslashes at its end continues on the next line.
    lines, pending = [], ""
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANK)
        if not pending and (not line or line[0] in "#!"):
            continue
        tail = _TRAILING_BACKSLASHES.search(line)
        if tail and len(tail[0]) % 2:
            pending += line[:-1]
            continue
        lines.append(pending + line)
        pending = ""
    return lines + [pending] * bool(pending)


def _split_key_value(line: str) -> tuple[str, str]:
    key = _KEY_END.match(line)
    assert key is not None  # the pattern also matches nothing
    separator = _SEPARATOR.match(line, key.end())
    assert separator is not None
    return _unescape(key[0]), _unescape(line[separator.end() :])


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _join_surrogates(_ESCAPE.sub(_plain, text), text)


def _plain(escape: re.Match[str]) -> str:
    body = escape[1]
    if len(body) == 5:
        return chr(int(body[1:], 16))
    if body == "u":
        raise CorruptTable(
            f"Properties file has an invalid escape: expected \\u and four hexadecimal digits, got "
            f"{escape.string[escape.start() : escape.start() + 6]!r}. Restore the file from a backup."
        )
    return _ESCAPED.get(body, body)


def _join_surrogates(text: str, source: str) -> str:
    if text.isascii():
        return text
    try:
        return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError:
        raise CorruptTable(
            f"Properties file has an unpaired surrogate in {source[:80]!r}. Restore the file from a backup."
        ) from None


def _escape(text: str, is_key: bool = False) -> str:
    escaped = _SPECIAL.sub(_special, text)
    if is_key:
        return escaped.replace(" ", "\\ ")
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _special(char: re.Match[str]) -> str:
    if short := _ESCAPES.get(char[0]):
        return short
    try:
        units = char[0].encode("utf-16-be")
    except UnicodeEncodeError:
        raise OptionError(
            f"Property {char.string[:80]!r} has an unpaired surrogate, which cannot be stored. Remove that character."
        ) from None
    return "".join(f"\\u{units[i : i + 2].hex().upper()}" for i in range(0, len(units), 2))


def _on_one_line(stamp: str) -> str:
    return " ".join(stamp.encode("ascii", "replace").decode().split())
