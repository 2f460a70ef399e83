"""What a source of a user's answers is looked at: a wrong answer is named with its source, and nothing is written."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from whole_numbers import SCHEMA, Numbers

import hoodoo
from hoodoo.errors import DataError, HoodooError, OptionError
from hoodoo.sources import BAD, Part, Planned, SourceLag

ROWS = pa.table({"id": [1]})


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, key="id", clean_every=None)


def answering(**methods: Any) -> Numbers:
    """A source of which some methods are others."""
    return type("Answering", (Numbers,), methods)(3)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: Planned(None, 5),
            "hoodoo.sources.Planned.position must be a non-empty string.* got 5",
        ),
        (
            lambda: Planned(None, None),
            "hoodoo.sources.Planned.position must be a non-empty string.* got None",
        ),
        (lambda: Planned(None, ""), "non-empty string"),
        (lambda: Planned(None, "\ud800"), "a non-empty string in UTF-8"),
        (lambda: Part([{"id": 1}]), "hoodoo.sources.Part.rows must be a pyarrow Table, got"),
        (lambda: Part(ROWS.to_batches()[0]), "hoodoo.sources.Part.rows must be a pyarrow Table"),
        (lambda: Part(ROWS, bad=ROWS), "a pyarrow Table with the columns .*'payload'.*, got a Table of .'id'."),
        (
            lambda: Part(ROWS, bad=None),
            "hoodoo.sources.Part.bad must be a pyarrow Table with the columns",
        ),
        (lambda: Part(ROWS, unknown="id"), "hoodoo.sources.Part.unknown must be a tuple of names"),
        (lambda: Part(ROWS, unknown=(5,)), "hoodoo.sources.Part.unknown must be a tuple of names"),
        (lambda: Part(ROWS, position=7), "hoodoo.sources.Part.position must be a string.* got 7"),
        (lambda: Part(ROWS, position="\udfff"), "hoodoo.sources.Part.position must be a string"),
        (
            lambda: Part(ROWS, unavailable=b"x"),
            "hoodoo.sources.Part.unavailable must be a string or None",
        ),
        (lambda: Part(ROWS, skipped=None), "hoodoo.sources.Part.skipped must be an integer"),
        (lambda: Part(ROWS, bytes=1.5), "hoodoo.sources.Part.bytes must be an integer"),
        (lambda: SourceLag("3", "files", 0.0), "hoodoo.sources.SourceLag.waiting must be an integer"),
        (lambda: SourceLag(3, None, 0.0), "hoodoo.sources.SourceLag.unit must be a string"),
        (lambda: SourceLag(3, "files", None), "hoodoo.sources.SourceLag.seconds must be a number"),
        (
            lambda: SourceLag(3, "files", 0.0, [1]),
            "hoodoo.sources.SourceLag.partitions must be a mapping",
        ),
    ],
    ids=range(19),
)
def test_an_answer_of_wrong_kinds_cannot_be_made(table: hoodoo.Table, make: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        make()

    def plan(*_: Any) -> Any:
        return make()

    with pytest.raises(OptionError, match=f"'numbers' is not a valid source: .*{said}") as told:
        hoodoo.ingest(answering(plan=plan), table).run()
    assert told.value.details["source"] == "numbers" and table.inspect.applications() == []


def test_numbers_of_numpy_are_numbers() -> None:
    assert Part(ROWS, skipped=np.int64(3)).skipped == SourceLag(np.int64(3), "files", np.float64(0)).waiting == 3  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(Planned(None, "5"))) == Planned(None, "5")
    assert Part(ROWS, BAD.empty_table().replace_schema_metadata({"of": "mine"})).bad.num_rows == 0


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ({"plan": lambda *_: "1"}, r"its plan\(\) must return a hoodoo.sources.Planned or None, got '1'"),
        ({"read": lambda *_: None}, r"its read\(\) must yield hoodoo.sources.Part objects, got None"),
        ({"read": lambda *_: ROWS}, r"its read\(\) must yield .*, got a Table"),
        ({"read": lambda *_: iter([ROWS])}, r"its read\(\) must yield .*, got a Table"),
        ({"read": lambda *_: iter([Part(ROWS), {"id": 1}])}, r"its read\(\) must yield .*'id': 1"),
        ({"read": lambda *_: [Part(5)]}, "'numbers' is not a valid source: Attribute hoodoo.sources.Part.rows"),
        (
            {"read": lambda *_: (Part(one) for one in [5])},
            "'numbers' is not a valid source: Attribute hoodoo.sources.Part.rows",
        ),
    ],
    ids=range(7),
)
def test_an_answer_of_another_kind_is_named_with_its_source_and_nothing_is_written(
    table: hoodoo.Table, methods: dict[str, Any], said: str
) -> None:
    source = answering(**methods)
    for begin in (lambda job: job.run(), lambda job: job.check()):
        with pytest.raises(HoodooError, match=said) as told:
            begin(hoodoo.ingest(source, table))
        assert type(told.value) in (DataError, OptionError) and told.value.details["source"] == "numbers"
    assert table.inspect.applications() == [] and table.scan().count() == 0


def test_a_lag_of_another_kind_is_named_with_its_source(table: hoodoo.Table) -> None:
    job = hoodoo.ingest(answering(lag=lambda *_: 3), table)
    with pytest.raises(DataError, match=r"'numbers' is not a valid source: its lag\(\) must return .*, got 3"):
        job.measure_lag()


def raising(problem: Exception) -> Any:
    def plan(*_: Any) -> Any:
        raise problem

    return answering(plan=plan)


def test_an_error_of_hoodoo_from_a_source_is_raised_as_it_is(table: hoodoo.Table) -> None:
    problem = OptionError("mine", option="x")
    with pytest.raises(OptionError) as raised:
        hoodoo.ingest(raising(problem), table).run()
    assert raised.value is problem


@pytest.mark.parametrize("kind", [ValueError, KeyError, OSError, TypeError, pa.ArrowInvalid, pa.ArrowIndexError])
def test_any_other_error_of_a_source_becomes_an_error_that_names_the_source(
    table: hoodoo.Table, kind: type[Exception]
) -> None:
    """It ended every job of the process."""
    with pytest.raises(DataError, match=rf"Source 'numbers' failed: {kind.__name__}: .*mine") as raised:
        hoodoo.ingest(raising(kind("mine")), table).run()
    assert isinstance(raised.value.__cause__, kind) and raised.value.details["source"] == "numbers"


def test_a_source_may_give_its_parts_as_a_list_and_have_no_name(table: hoodoo.Table) -> None:
    source = answering(read=lambda *_: [Part(ROWS.append_column("part", pa.array(["a"])))])
    assert hoodoo.ingest(source, table).run().rows == 1

    class Nameless:
        plan, read, lag = Numbers(2).plan, Numbers(2).read, Numbers(2).lag

    nameless: Any = Nameless()
    with pytest.raises(OptionError, match="Application name must be"):
        hoodoo.ingest(nameless, table)
    assert hoodoo.ingest(nameless, table, name="given").run().rows == 2
