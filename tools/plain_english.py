"""Check that docstrings, error messages and documentation avoid constructions that need a second reading.

`python tools/plain_english.py` prints each hit with its location, and fails if a folder has hits in more than 0.5 % of
its sentences.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    "hoodoo",
    "timeline",
    "format",
    "index",
    "merge",
    "storage",
    "writers",
    "readers",
    "compactor",
    "exports",
    "sources",
    "ingestion",
    "engine",
    "docs",
    "README.md",
)
LIMIT = 0.005
PATTERNS = {
    "begins with a question word": r"^(What|Who|Whose|Where|How|That|Those|Whoever|Which)\b(?!.*\?)",
    "negates with 'is no'": r"(?<![Tt]here )\b(is|are|was|were) (no|none)\b(?! (longer|more))",
    "refers to a noun that is not in the sentence": (
        r"\b(ours|theirs|the same of|none of (these|those|them|ours|theirs)|of others|by others|those of the other)\b"
    ),
    "uses a word with another meaning": (
        r"\b(anew|stead|dear|doomed|homeless|courtesy|neighbour|parcels?|pleas?|aside|whoever|so many|brings along)\b"
    ),
    "chains relative clauses": r"\b(of|by|under) which\b",
}
"""Constructions by their description in the output."""


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a file for readers, with their line numbers. Text in backticks is replaced by `X`."""
    if path.suffix == ".md":
        yield from _in_markdown(path.read_text())
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from ((getattr(node, "lineno", 1), one) for one in _split(ast.get_docstring(node) or ""))
        elif isinstance(node, ast.Call):
            for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                text = _message(argument)
                if text.count(" ") >= 3:
                    yield node.lineno, text


def _in_markdown(text: str) -> Iterator[tuple[int, str]]:
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield from ((number, one) for one in _split(line.strip(" |-#*>")))


def _split(text: str) -> list[str]:
    plain = " ".join(re.sub(r"`[^`]*`", "X", text).split())
    return [one for one in re.split(r"(?<=[.!?:]) +", plain) if one]


def _message(node: ast.expr) -> str:
    """Return the text of a string argument, with `X` for each value in an f-string, or '' for other arguments."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    parts = node.values if isinstance(node, ast.JoinedStr) else []
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in parts)


def hits(path: Path) -> tuple[int, list[str]]:
    """Return the number of sentences of a file, and a line of output for each hit."""
    found = list(sentences(path))
    return len(found), [
        f"{path.relative_to(ROOT)}:{line}: {problem}: {sentence[:150]}"
        for line, sentence in found
        for problem, pattern in PATTERNS.items()
        if re.search(pattern, sentence)
    ]


def main() -> int:
    """Check all folders. Returns 1 if a folder exceeds the limit."""
    failed = 0
    for name in FOLDERS:
        top = ROOT / name
        files = [top] if top.is_file() else [path for kind in ("*.py", "*.md") for path in sorted(top.rglob(kind))]
        checked = [hits(path) for path in files]
        total, lines = sum(count for count, _ in checked), [line for _, found in checked for line in found]
        if len(lines) > LIMIT * total:
            failed = 1
            print("\n".join(lines))
            print(
                f"{name}: {len(lines)} hits in {total} sentences: expected at most {LIMIT:.1%}. Rephrase some of them."
            )
        elif "--all" in sys.argv:
            print("\n".join([*lines, f"{name}: {len(lines)} hits in {total} sentences"]))
    return failed


if __name__ == "__main__":
    sys.exit(main())
