"""Properties text against the grammar of java.util.Properties and the facts of the format document."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoodoo.errors import CorruptTable, OptionError
from hoodoo.format import properties

STAMP = "2026-03-07T16:24:33.123Z"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(st.dictionaries(TEXT, TEXT, max_size=8))
def test_what_is_rendered_is_parsed_back(values: dict[str, str]) -> None:
    assert properties.parse_properties(properties.format_properties(values, STAMP)) == values


@given(st.dictionaries(TEXT, TEXT, max_size=4))
def test_rendered_text_is_ascii_with_one_line_per_key_after_two_comments(values: dict[str, str]) -> None:
    lines = properties.format_properties(values, STAMP).decode("ascii").splitlines()
    assert [line[0] for line in lines[:2]] == ["#", "#"]
    assert len(lines) == 2 + len(values)


@given(st.text(max_size=60))
def test_any_bytes_are_parsed_or_refused_as_corrupt(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    try:
        parsed = properties.parse_properties(data)
    except CorruptTable:
        return
    assert all(isinstance(k, str) and isinstance(v, str) for k, v in parsed.items())


def test_the_worked_checksum_of_the_format_document() -> None:
    assert properties.checksum("default", "v8_trips_8i3u1d") == "1197752875"


def test_a_missing_database_counts_as_empty_text() -> None:
    values = {properties.NAME: "t", properties.CHECKSUM: properties.checksum("", "t")}
    properties.check(values)


def test_a_wrong_checksum_is_refused_and_an_absent_one_is_not() -> None:
    values = {properties.NAME: "t", properties.DATABASE: "default"}
    properties.check(values)
    properties.check(values | {properties.CHECKSUM: properties.checksum("default", "t")})
    with pytest.raises(CorruptTable, match="Checksum"):
        properties.check(values | {properties.CHECKSUM: "1"})
    with pytest.raises(CorruptTable):
        properties.check({properties.NAME: "t", properties.CHECKSUM: properties.checksum("default", "t")})


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("a=b", "a", "b"),
        ("a = b ", "a", "b "),
        ("a:b=c", "a", "b=c"),
        ("a b", "a", "b"),
        ("  a  :  b", "a", "b"),
        ("a", "a", ""),
        (r"a\=b=c\:d", "a=b", "c:d"),
        (r"k\ ey=\ v", "k ey", " v"),
        (r"u=\u00e9\uD83D\uDE00", "u", "é😀"),
        ("l=é", "l", "Ã©"),  # the file is ISO-8859-1, whatever an editor made of it
        ("c=one\\\n   two", "c", "onetwo"),
        ("e=end\\\\\nnext=1", "e", "end\\"),
        (r"t=\t\n\r\f\q", "t", "\t\n\r\fq"),
        ("a=1\na=2", "a", "2"),
    ],
)
def test_the_grammar_is_that_of_java(line: str, key: str, value: str) -> None:
    assert properties.parse_properties(line.encode())[key] == value


def test_comments_and_blank_lines_are_no_properties() -> None:
    assert properties.parse_properties(b"#a=1\n!b=2\n\n   \r\n  # c=3\r\nd=4\r") == {"d": "4"}


def test_a_value_is_escaped_as_apache_hudi_escapes_it() -> None:
    rendered = properties.format_properties(
        {"hoodie.table.create.schema": '{"type":"record"}', "b c": "é #!\n"}, STAMP
    ).decode()
    assert 'hoodie.table.create.schema={"type"\\:"record"}\n' in rendered
    assert "b\\ c=\\u00E9 \\#\\!\\n\n" in rendered


def test_damaged_escapes_are_refused() -> None:
    for data in (rb"a=\u12", rb"a=\uD83D", b"x" * (properties.SIZE_CAP + 1)):
        with pytest.raises(CorruptTable):
            properties.parse_properties(data)
    with pytest.raises(OptionError):
        properties.format_properties({"a": "\ud83d"}, STAMP)


def test_a_stamp_cannot_smuggle_in_a_property() -> None:
    assert properties.parse_properties(properties.format_properties({"a": "1"}, "now\na=2")) == {"a": "1"}


def test_partition_metadata_names_the_instant_and_the_depth() -> None:
    data = properties.create_partition_metadata("20260307162557587", 2, STAMP)
    assert data.startswith(b"#partition metadata\n#")
    assert properties.parse_properties(data) == {"commitTime": "20260307162557587", "partitionDepth": "2"}
