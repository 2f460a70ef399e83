"""Java properties text: `hoodie.properties` and `.hoodie_partition_metadata`, to and from a plain dict.

It knows escapes, comments and the table checksum; which keys a table needs, and what their values mean, it does not
know.

Facts: docs/format.md sections 3.1, 3.2 and 8.1; the grammar is that of `java.util.Properties.load`.
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
"""Bytes. A properties file holds the Avro schema of one table: more than this is not such a file."""

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


def parse(data: bytes) -> dict[str, str]:
    """Read properties text; of a repeated key the last value counts, as in Java.

    Raises CorruptTable for an escape that is none, for a lone half of a surrogate pair and for more than `SIZE_CAP`
    bytes.
    """
    if len(data) > SIZE_CAP:
        raise CorruptTable(
            f"A properties file has {len(data):,} bytes, more than the {SIZE_CAP:,} that one may have.", bytes=len(data)
        )
    return dict(_split(line) for line in _logical_lines(data.decode("iso-8859-1")))


def render(values: Mapping[str, str], stamp: str) -> bytes:
    """Properties text in ASCII, sorted by key, after two comment lines that say when (`stamp`, one line of text).

    Raises OptionError for text that has no UTF-16 form (a lone surrogate).
    """
    lines = [f"#Properties saved on {_one_line(stamp)}", f"#{_one_line(stamp)}"]
    lines += [f"{_escape(key, is_key=True)}={_escape(values[key])}" for key in sorted(values)]
    return ("\n".join(lines) + "\n").encode("ascii")


def checksum(database: str, table: str) -> str:
    """`hoodie.table.checksum`: the decimal CRC-32 of `<database>.<table>` in UTF-8; a table without database has
    database ''.
    """
    return str(zlib.crc32(f"{database}.{table}".encode()))


def check(values: Mapping[str, str]) -> None:
    """Pass if the stored checksum is absent or right; raises CorruptTable for a wrong one, as Apache Hudi refuses the
    table then.
    """
    stored = values.get(CHECKSUM)
    expected = checksum(values.get(DATABASE, ""), values.get(NAME, ""))
    if stored is not None and stored != expected:
        raise CorruptTable(
            f"hoodie.properties carries checksum {stored!r}, but its database and table name give {expected}: "
            "the file was damaged or edited by hand. Restore hoodie.properties from a backup.",
            stored=stored,
            expected=expected,
        )


def partition_metadata(instant: str, depth: int, stamp: str) -> bytes:
    """`.hoodie_partition_metadata`: the instant that first wrote into the partition, and its number of path segments (0
    for the table's root).
    """
    return f"#partition metadata\n#{_one_line(stamp)}\ncommitTime={instant}\npartitionDepth={depth}\n".encode("ascii")


def _logical_lines(text: str) -> list[str]:
    """Lines without comments and blanks; one that ends in an odd number of backslashes continues in the next."""
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


def _split(line: str) -> tuple[str, str]:
    """Key and value, split at the first `=`, `:` or blank that no backslash protects."""
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
            f"A properties file holds the escape {escape.string[escape.start() : escape.start() + 6]!r}, which is "
            "no \\uXXXX."
        )
    return _ESCAPED.get(body, body)


def _join_surrogates(text: str, source: str) -> str:
    """UTF-16 units to characters: `\\uD83D\\uDE00` is one."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError:
        raise CorruptTable(f"A properties file holds {source[:80]!r}, with half a surrogate pair.") from None


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
        raise OptionError(f"{char.string[:80]!r} holds half a surrogate pair, which no text file can keep.") from None
    return "".join(f"\\u{units[i : i + 2].hex().upper()}" for i in range(0, len(units), 2))


def _one_line(stamp: str) -> str:
    """A comment must not run into a line of its own that would be read as a property."""
    return " ".join(stamp.encode("ascii", "replace").decode().split())
