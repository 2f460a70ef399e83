"""Tokenizer for SQL, as far as needed to find the names of columns and parameters."""

from __future__ import annotations

import re

TOKEN = re.compile(
    r"""(?P<skipped>[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | (?P<tag>\$\w*\$).*?(?P=tag) | --[^\n]* | /\*.*?\*/)
    | (?P<quoted>"(?:[^"]|"")*" | `(?:[^`]|``)*`)
    | (?P<parameter>\$(?!\d)(?:\w|[^\x00-\x7f\s])+)
    | (?P<word>[^\W\d][\w$]*)
    | (?P<dot>\.)
    | (?P<space>\s+)
    | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
"""Pattern for tokens.

Each character belongs to one token, whose kind is the group. Strings and comments are `skipped`. A `parameter` is `$`
and a name.
"""

__all__ = ["TOKEN"]
