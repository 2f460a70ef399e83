"""What a batch holds can be read again, or the batch is refused before anything is written."""

from __future__ import annotations

import io
import pickle
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest
from poisoned import poisoned, random_type

import hoodoo
from hoodoo.writers.batches import value_validation
from hoodoo.writers.batches.value_validation import validate_columns

BAD_TEXT = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe"))
TOO_LARGE = pa.Array.from_buffers(pa.decimal128(5, 2), 1, [None, pa.py_buffer((10**9).to_bytes(16, "little"))])
MIDNIGHT = pa.array([86_400_000_000], pa.int64()).view(pa.time64("us"))
FAR = pa.array([2**62], pa.int64()).cast(pa.timestamp("us", "UTC"))
FAR_DAY = pa.array([2_932_897], pa.int32()).cast(pa.date32())
LOST = pa.array([0], pa.int64()).cast(pa.timestamp("us", "Nowhere/City"))
BROKEN = pa.StringArray.from_buffers(2, pa.py_buffer(np.array([0, 9, 2], np.int32)), pa.py_buffer(b"abcdefghi"))


def listed(items: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(items)], pa.int32()), items)


def mapped(items: pa.Array) -> pa.Array:
    return pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["k"]), items)


def within(items: pa.Array, name: str = "s") -> pa.Array:
    return pa.StructArray.from_arrays([items], [name])


UNSOUND = {
    "text": (BAD_TEXT, "x", "UTF-8"),
    "text_in_a_list": (listed(BAD_TEXT), "x.item", "UTF-8"),
    "text_in_a_map": (mapped(BAD_TEXT), "x.value", "UTF-8"),
    "a_maps_key": (
        pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), BAD_TEXT, pa.array([1])),
        "x.key",
        "UTF-8",
    ),
    "decimal": (TOO_LARGE, "x", "precision"),
    "decimal_in_a_struct_in_a_list": (listed(within(TOO_LARGE, "price")), "x.item.price", "precision"),
    "time": (MIDNIGHT, "x", "86400000000"),
    "time_in_a_map": (mapped(MIDNIGHT), "x.value", "86400000000"),
    "timestamp": (FAR, "x", "years 1 to 9999"),
    "timestamp_in_a_struct": (within(FAR), "x.s", "years 1 to 9999"),
    "date": (FAR_DAY, "x", "years 1 to 9999"),
    "date_in_a_list": (listed(FAR_DAY), "x.item", "years 1 to 9999"),
    "zone": (LOST, "x", "Nowhere/City"),
    "zone_in_a_list": (listed(LOST), "x.item", "Nowhere/City"),
}


@pytest.mark.parametrize(("what", "kind"), [*((what, "merge_on_read") for what in UNSOUND), ("text", "copy_on_write")])
def test_a_value_that_no_reader_takes_is_refused_before_anything_is_written(
    tmp_path: Path, what: str, kind: str
) -> None:
    """Text that was not UTF-8, a time of 24:00, a decimal of too many digits were acknowledged into logs, and the file
    group could not be read, compacted or updated any more; no answer named the row.
    """
    bad, path, why = UNSOUND[what]
    schema = pa.schema([("id", pa.string()), ("x", bad.type)])
    table = hoodoo.create(tmp_path / "t", schema, key="id", type=kind)
    table.upsert(pa.table({"id": ["a", "b"], "x": pa.nulls(2, bad.type)}))
    before, files = table.cursor, sorted(tmp_path.rglob("*"))
    batch = pa.table({"id": ["c", "b", "a"], "x": pa.chunked_array([pa.nulls(2, bad.type), bad])})
    with pytest.raises(hoodoo.ColumnError, match=why) as caught:
        table.upsert(batch)
    assert pickle.loads(pickle.dumps(caught.value)).details == {"column": path, "row": 2}
    assert "'a'" in caught.value.message, "the key is named: in a task of Spark a row's number says little"
    assert table.cursor == before and sorted(tmp_path.rglob("*")) == files
    assert table.verify().ok and len(table.scan().to_arrow()) == 2


def test_text_that_a_csv_reader_did_not_look_at_is_refused_as_a_key_too(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.string())]), key="id")
    unchecked = csv.ConvertOptions(check_utf8=False, column_types={"id": pa.string()})
    rows = csv.read_csv(io.BytesIO(b"id\na\ncaf\xe9\n"), convert_options=unchecked)
    for write in (table.upsert, table.insert, table.delete, table.get):
        with pytest.raises(hoodoo.ColumnError, match=r"Column 'id', row 1: b'caf\\xe9' is not valid UTF-8"):
            write(rows)


def test_arrays_whose_structure_is_broken_are_refused(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.string()), ("x", pa.string())]), key="id")
    with pytest.raises(hoodoo.ColumnError, match="structure is invalid") as caught:
        table.upsert(pa.table({"id": ["a", "b"], "x": BROKEN}))
    assert caught.value.details["column"] == "x"
    beyond = pa.DictionaryArray.from_arrays(pa.array([0, 7]), pa.array(["y"]), safe=False)
    with pytest.raises(hoodoo.ColumnError, match="structure is invalid") as caught:
        table.upsert(pa.table({"id": ["a", "b"], "x": beyond}))
    assert caught.value.details == {"column": "x", "row": 1}


def test_what_no_row_refers_to_is_no_fault(tmp_path: Path) -> None:
    """Rows before and after a slice, and words of a dictionary that no row has."""
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.string()), ("x", pa.list_(pa.string()))]), key="id")
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.concat_arrays([BAD_TEXT, pa.array(["y"])]))
    table.upsert(pa.table({"id": ["a"], "x": lists.slice(1)}))
    words = pa.DictionaryArray.from_arrays(pa.array([1]), pa.concat_arrays([BAD_TEXT, pa.array(["b"])]))
    table.upsert(pa.table({"id": words, "x": pa.array([["z"]], pa.list_(pa.string()))}))
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [{"id": "a", "x": ["y"]}, {"id": "b", "x": ["z"]}]


@pytest.mark.parametrize("seed", range(8))
def test_what_lies_below_a_null_is_neither_refused_nor_read(tmp_path: Path, seed: int) -> None:
    """Arrays of every type, with values that no reader takes wherever a null covers them, come back from bases, from
    logs and from what compaction makes of both. A null record with a decimal in a list made its file group unreadable.
    """
    rng = random.Random(seed)
    kinds = [random_type(rng, depth) for depth in (0, 0, 1, 2, 2, 3)]
    schema = pa.schema([("id", pa.string()), *((f"c{n}", kind) for n, kind in enumerate(kinds))])
    table = hoodoo.create(tmp_path / "t", schema, key="id")
    want: dict[str, dict[str, object]] = {}
    for count in (9, 6):
        arrays = [poisoned(rng, kind, np.ones(count, bool)) for kind in kinds]
        rows = pa.table([pa.array([f"k{n}" for n in range(count)]), *arrays], names=schema.names)
        table.upsert(rows)
        target = pa.table(
            [sound(column, name) for name, column in zip(rows.column_names, rows.columns, strict=True)],
            names=schema.names,
        ).cast(table.schema)
        want |= {row["id"]: row for row in target.to_pylist()}
        assert {row["id"]: row for row in table.scan().to_arrow().to_pylist()} == want
    table.compact()
    back = table.scan().to_arrow()
    back.validate(full=True)
    assert {row["id"]: row for row in back.to_pylist()} == want and table.verify().ok


def sound(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Built anew from what Python sees of it, so that nothing is left below nulls."""
    return pa.chunked_array([pa.array(column.to_pylist(), _plain(column.type))])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain(field.type)) for field in kind])
    return pa.map_(pa.string(), _plain(kind.item_type)) if pa.types.is_map(kind) else kind


def test_a_sound_batch_is_looked_at_and_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nulls are pushed down only where something was found: a usual batch pays for one look."""
    rows = pa.table({"id": ["a", "b"], "x": [[{"y": 1}], None], "at": pa.array([1, None], pa.timestamp("us", "UTC"))})
    monkeypatch.setattr(value_validation, "_remove_hidden_values", lambda array: pytest.fail("copied"))
    assert all(validate_columns(rows, rows.column_names, ["id"])[name] is not None for name in rows.column_names)
    assert (
        validate_columns(rows, ["x"], [])["x"].chunk(0).buffers()[1].address == rows["x"].chunk(0).buffers()[1].address
    )
