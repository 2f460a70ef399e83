"""The words, quoted names and texts of SQL, as far as one has to know them to find names of columns in it. What the SQL
means is for its parser.
"""

from __future__ import annotations

import re

TOKEN = re.compile(
    r"""(?P<skipped>[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | (?P<tag>\$\w*\$).*?(?P=tag) | --[^\n]* | /\*.*?\*/)
    | (?P<quoted>"(?:[^"]|"")*" | `(?:[^`]|``)*`)
    | (?P<word>[^\W\d]\w*)
    | (?P<dot>\.)
    | (?P<space>\s+)
    | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
"""Each character of a text belongs to one token; its kind is the group: texts and comments are `skipped`."""

__all__ = ["TOKEN"]
