"""Pictures of the documentation, as SVG for light and dark themes.

`python tools/pictures.py` writes them to docs/images/. A test compares the files with this code.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

IMAGES = Path(__file__).parents[1] / "docs/images"
_STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #1f2937; text-anchor: middle }
.small { font-size: 11px; fill: #6b7280 }
rect { fill: #eef2ff; stroke: #4f46e5; rx: 8 }
.key rect { fill: #4f46e5 }
.key text, .key .small { fill: #fff }
line { stroke: #6b7280; stroke-width: 1.5; marker-end: url(#arrow) }
.dash { stroke-dasharray: 4 4 }
marker path { fill: #6b7280 }
@media (prefers-color-scheme: dark) {
  text { fill: #e5e7eb }
  .small { fill: #9ca3af }
  rect { fill: #1e1b4b; stroke: #818cf8 }
  .key rect { fill: #818cf8 }
  .key text, .key .small { fill: #111827 }
}
</style>"""
_ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 8 4 0 8z"/></marker></defs>'
)


def _box(x: int, y: int, width: int, title: str, notes: Sequence[str] = (), key: bool = False) -> str:
    height = 30 + 15 * len(notes)
    parts = [f'<g class="{"key" if key else "box"}"><rect x="{x}" y="{y}" width="{width}" height="{height}"/>']
    parts.append(f'<text x="{x + width // 2}" y="{y + 20}">{escape(title)}</text>')
    parts += [
        f'<text class="small" x="{x + width // 2}" y="{y + 37 + 15 * index}">{escape(note)}</text>'
        for index, note in enumerate(notes)
    ]
    return "".join([*parts, "</g>"])


def _line(x1: int, y1: int, x2: int, y2: int, dashed: bool = False) -> str:
    style = ' class="dash"' if dashed else ""
    return f'<line{style} x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def _picture(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
    return "\n".join([head, f"<title>{escape(title)}</title>", _STYLE, _ARROW, *parts, "</svg>"]) + "\n"


def commit() -> str:
    steps = [
        ("Prepare", ("one row per key", "checks and types")),
        ("Locate", ("bloom filters and", "key hashes")),
        ("Route", ("append to logs or", "rewrite base files")),
        ("Write files", ("Parquet and Avro,", "not visible yet")),
        ("Commit", ("create the next slot,", "only if it is absent")),
        ("Publish", ("instant in", "Hudi's timeline")),
    ]
    parts = [
        _box(10 + 150 * index, 20, 132, title, notes, title == "Commit") for index, (title, notes) in enumerate(steps)
    ]
    parts += [_line(142 + 150 * index, 50, 160 + 150 * index, 50) for index in range(len(steps) - 1)]
    return _picture(900, 110, "The way of a batch: from rows to a visible commit", parts)


def file_group() -> str:
    parts = [
        _box(10, 20, 150, "Base file 1", ("Parquet, with", "an index entry")),
        _box(190, 20, 100, "Log 1", ("changed rows",)),
        _box(310, 20, 100, "Log 2", ("deletes",)),
        _box(430, 20, 100, "Log 3", ("changed rows",)),
        _box(600, 20, 150, "Base file 2", ("merged rows",), True),
        _line(530, 45, 600, 45),
        '<text class="small" x="565" y="37">compaction</text>',
        _box(190, 120, 340, "Read: base file 1 merged with the logs"),
        _line(85, 80, 190, 135, True),
        _line(240, 65, 260, 120, True),
        _line(360, 65, 360, 120, True),
        _line(480, 65, 460, 120, True),
    ]
    return _picture(770, 165, "A file group: a base file, its logs, and the base file after compaction", parts)


def two_writers() -> str:
    parts = [_box(130 + 130 * index, 70, 110, f"Slot {7 + index}", (), index < 3) for index in range(4)]
    parts += [_line(240 + 130 * index, 85, 260 + 130 * index, 85) for index in range(3)]
    parts += [
        _box(260, 5, 110, "Writer A"),
        _line(315, 35, 315, 70),
        _box(260, 140, 110, "Writer B"),
        _line(315, 140, 315, 100, True),
        _line(370, 155, 445, 100),
        '<text class="small" x="190" y="152">loses slot 8,</text>',
        '<text class="small" x="190" y="167">reads it, takes slot 9</text>',
    ]
    return _picture(660, 185, "Two writers: a slot can be created only once, so the loser takes the next slot", parts)


PICTURES = {"commit.svg": commit, "file-group.svg": file_group, "two-writers.svg": two_writers}

if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (IMAGES / name).write_text(draw())
