"""`make lint` finds sentences that need a second reading (tools/plain_english.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import plain_english  # noqa: E402


@pytest.mark.parametrize(
    ("sentence", "is_hit"),
    [
        ("What a transaction needs of the timeline.", True),
        ("Return the id, which is none of ours.", True),
        ("'yesterday' is no position.", True),
        ("Rows of which the keys are unknown.", True),
        ("There is no gap.", False),
        ("The table has no partition columns.", False),
        ("The job is no longer running.", False),
        ("What does a commit cost?", False),
        ("Return `what is none of ours`.", False),
    ],
)
def test_a_sentence_is_a_hit_if_it_needs_a_second_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: str, is_hit: bool
) -> None:
    monkeypatch.setattr(plain_english, "ROOT", tmp_path)
    for name, text in {"page.md": f"# Title\n\n{sentence}\n", "module.py": f'"""{sentence}"""\n'}.items():
        (tmp_path / name).write_text(text)
        _, lines = plain_english.hits(tmp_path / name)
        assert bool(lines) == is_hit, lines


def test_messages_of_errors_are_sentences_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_english, "ROOT", tmp_path)
    (tmp_path / "m.py").write_text('raise ValueError(f"{name} is no name of a column")\n')
    assert plain_english.hits(tmp_path / "m.py") == (
        1,
        ["m.py:1: negates with 'is no': X is no name of a column"],
    )
