"""Tables in HTML for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from itertools import islice

from hoodoo.redact import redact

ROWS_SHOWN = 60
_CELL = 200  # maximum number of characters


def format_html_table(
    title: str, names: Sequence[str], rows: Iterable[Sequence[object]], rows_max: int = ROWS_SHOWN
) -> str:
    left = iter(rows)
    shown = list(islice(left, rows_max))
    more = sum(1 for _ in left)
    head = "".join(f"<th>{_text(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{_text(value)}</td>" for value in row) + "</tr>" for row in shown)
    rest = f"<p>and {more:,} more</p>" if more else ""
    return f"<p>{_text(title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def truncate_text(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"


def _text(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return html.escape(truncate_text(redact("" if value is None else str(value)), _CELL))
