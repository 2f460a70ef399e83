"""JSON text that is nested so deeply that a reader takes the process down, or has numbers that no column holds."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hoodoo.errors import DataError
from hoodoo.writers.batches import json_text
from hoodoo.writers.batches.json_text import DEPTH_MAX, count_objects, require_shallow_values
from hoodoo.writers.batches.row_files import parse_rows, read_local_files

FLOAT = pa.schema([("id", pa.int64()), ("f", pa.float64())])


def depth_of(value: Any) -> int:
    if isinstance(value, (dict, list)):
        return 1 + max(map(depth_of, value.values() if isinstance(value, dict) else value), default=0)
    return 0


def drawn(draw: random.Random, depth: int) -> Any:
    kind = draw.random() if depth else 1.0
    if kind < 0.3:
        return [drawn(draw, depth - 1) for _ in range(draw.randrange(3))]
    if kind < 0.6:
        return {draw.choice(["a", "]", '"[', "\\", '\\\\"{']): drawn(draw, depth - 1) for _ in range(draw.randrange(3))}
    return draw.choice([1, None, "x[", '}"', "\\", "[[[[", '\\"', "\\\\"])


@pytest.mark.parametrize("at_once", [1, 3, 7, 64, 4 << 20])
def test_the_depth_is_counted_over_texts_and_escapes_however_the_text_is_cut(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_text, "_AT_ONCE", at_once)
    draw = random.Random(at_once)
    for _ in range(500):
        value = {"k": drawn(draw, draw.randrange(12))}
        assert json_text._max_nesting_depth(np.frombuffer(json.dumps(value).encode(), np.uint8)) == depth_of(value), (
            value
        )


def nested(levels: int, name: str = "u") -> str:
    """A row of so many levels."""
    return f'{{"id":1,"{name}":{"[" * (levels - 1)}{"]" * (levels - 1)}}}\n'


@pytest.mark.parametrize("beside", ["", '{"id":2}\n' * 100, '{"id":2,"u":[[1],[2],[3]]}\n' * 100, "\n" * 300])
def test_a_row_may_be_nested_so_deeply_and_no_deeper(beside: str) -> None:
    require_shallow_values(pa.py_buffer((beside + nested(DEPTH_MAX) + beside).encode()))
    with pytest.raises(pa.ArrowInvalid, match="nested levels"):
        require_shallow_values(pa.py_buffer((beside + nested(DEPTH_MAX + 1) + beside).encode()))


@pytest.mark.parametrize("opened", ["[", '{"a":', "[\n", '{"a":\n'])
def test_a_value_that_nobody_asked_for_takes_no_process_down(opened: str, tmp_path: Path) -> None:
    """Arrow read it by recursion: a line of 40 kB ended the process, and again each time that it was started anew."""
    file = tmp_path / "rows.json"
    file.write_text('{"id":1,"u":' + opened * 20_000 + "\n")
    with pytest.raises(DataError, match="nested levels"):
        read_local_files(file, FLOAT)


@pytest.mark.parametrize("number", ["9" * 309, "9" * 308 + "e5", "-" + "9" * 400])
@pytest.mark.parametrize("beside", ["", '{"id":2,"f":Infinity}\n', '{"id":3,"f":2,"Infinity":1}\n'])
def test_a_number_that_its_column_cannot_hold_does_not_become_infinite(number: str, beside: str) -> None:
    text = f'{beside}{{"id":1,"f":{number}}}\n{beside}'.encode()
    with pytest.raises(pa.ArrowInvalid, match="too large for column 'f'"):
        parse_rows("json", pa.py_buffer(text), FLOAT, lambda name: False)


def test_infinity_is_a_word_that_many_write() -> None:
    text = b'{"id":1,"f":Infinity}\n{"id":2,"f":-Infinity}\n{"id":3,"f":NaN}\n'
    assert parse_rows("json", pa.py_buffer(text), FLOAT, lambda name: False)["f"].to_pylist()[:2] == [
        float("inf"),
        float("-inf"),
    ]


@pytest.mark.parametrize("number", ["1e400", "9" * 400, "-1e999"])
def test_a_number_of_csv_that_its_column_cannot_hold_does_not_become_infinite(number: str) -> None:
    text = f"id,f\n1,inf\n2,-Infinity\n3,{number}\n".encode()
    with pytest.raises(DataError, match="line 4: .* is too large for a double"):
        parse_rows("csv", pa.py_buffer(text), FLOAT, lambda name: False)
    fine = parse_rows("csv", pa.py_buffer(b"id,f\n1,inf\n2,-Infinity\n3,+INF\n"), FLOAT, lambda name: False)
    assert np.isinf(fine["f"].to_numpy()).all()


def test_a_line_is_an_object_or_the_text_is_none_of_lines() -> None:
    assert count_objects(pa.py_buffer(b'{"a":1}\n\n{"a":2}\r\n')) == 2
    assert count_objects(pa.py_buffer(b'{"a":\n1}\n')) == -1
