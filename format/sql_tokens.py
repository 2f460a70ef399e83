"""SQL tokenizer for names of columns and parameters."""

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
"""Pattern for SQL tokens.

Each character belongs to one token, and the name of the matching group is the kind of the token. Strings and comments
are `skipped`. A `parameter` is `$` followed by a name.
"""

__all__ = ["TOKEN"]
