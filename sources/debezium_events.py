"""Decoder of Debezium events in JSON.

Arrow's JSON reader decodes all events together. Events that it rejects are decoded one by one.

An event is an envelope: the operation (`op`), the row after and before the change, and the position of the change in
the database's log (`source`). Values are in their JSON encoding (debezium_values.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from hoodoo.errors import ColumnError
from hoodoo.redact import printable
from hoodoo.sources.bad_messages import BadMessages
from hoodoo.sources.debezium_messages import KafkaConnectMessages, json_objects_to_lines
from hoodoo.sources.debezium_schemas import read_column_descriptions
from hoodoo.sources.debezium_values import (
    FLOATS,
    SCALED,
    UNFIT,
    convert_json_value,
    decimals_to_strings,
    is_scaled_decimal_object,
    json_type_of_column,
)
from hoodoo.sources.json_messages import repair_rows
from hoodoo.sources.one_type import describe_conflicting_types, several_types_error

UPDATE = "u"
_ASCII_CHOICES = (False, True)
_INSPECTED_STEP = 100
_ONE_BY_ONE_MAX = 1_000  # number of messages that are decoded one by one if one of them is rejected
SOURCE = pa.struct(
    [
        ("connector", pa.string()),
        ("lsn", pa.int64()),
        ("sequence", pa.string()),
        ("file", pa.string()),
        ("pos", pa.int64()),
        ("row", pa.int64()),
    ]
)
_TYPES = {bool: "boolean", int: "long", float: "double", str: "string", dict: "struct", list: "list"}
_SOURCE_TYPES = {field.name: (str if pa.types.is_string(field.type) else int, type(None)) for field in SOURCE}


@dataclass(frozen=True)
class ChangeEvents:
    """Change events with values in JSON encoding.

    Attributes:
        of: The messages of the events.
        op: The operation of each event, such as 'c' (insert), 'u' (update) or 'd' (delete).
        after: The columns of the row after the change. All values are null for events without this row.
        there: Mask of the events that contain the row after the change.
        before: The columns of the row before the change, as far as the database logs it.
        lacking: For each column a mask of the events whose row after the change lacks the column. Columns that no row
            lacks are left out.
        source: The log position of each change in its database, by field of `source`.
    """

    of: KafkaConnectMessages
    op: pa.Array
    after: Mapping[str, pa.Array]
    there: np.ndarray
    before: Mapping[str, pa.Array]
    lacking: Mapping[str, np.ndarray]
    source: Mapping[str, pa.Array]


class EventReader:
    """Decoder of JSON change events.

    Attributes:
        known: The columns of the table that an event may have.
        spelt: For each column the Arrow type of its JSON encoding, or None if events cannot contain the column.
        left_out: Names of the event columns that were left out so far, because the table does not have them.
        skipped: Number of messages so far that change no row, such as heartbeats.
    """

    def __init__(self, known: dict[str, pa.Field], unknown: bool, before: bool) -> None:
        self.known, self.unknown = known, unknown
        self.spelt = {name: json_type_of_column(field.type) for name, field in known.items()}
        self._before = before
        self.left_out, self.skipped = set[str](), 0
        self._scaled = set[str]()

    def add_new_column(self, name: str, kind: pa.DataType) -> None:
        self.known[name] = pa.field(name, kind)
        self.spelt[name] = json_type_of_column(kind)

    def events(self, some: KafkaConnectMessages, bad: BadMessages) -> Iterator[ChangeEvents]:
        """Decode change events.

        The events are decoded together if possible, or else one by one. All messages must have the same schema. Invalid
        events are added to `bad`.
        """
        events = self._decode_together(some)
        if events is not None:
            yield events
        elif len(some) > _ONE_BY_ONE_MAX:
            half = len(some) // 2
            yield from self.events(some.part(0, half), bad)
            yield from self.events(some.part(half, len(some)), bad)
        else:
            yield from self._decode_one_by_one(some, bad)

    def _decode_together(self, some: KafkaConnectMessages) -> ChangeEvents | None:
        # None if this fails, or if an event lacks `op`.
        text = json_objects_to_lines(some.payloads)
        if text is None:
            return None
        data = pa.py_buffer(text)
        kinds = {name: type_ for name, type_ in self.spelt.items() if type_ is not None}
        if any(_has_non_null_field(text, name) for name in self.spelt.keys() - kinds.keys()):
            return None
        image = pa.struct([(name, SCALED if name in self._scaled else type_) for name, type_ in kinds.items()])
        envelope = [("op", pa.string()), ("after", image), ("source", SOURCE)]
        if self._before or self.unknown:
            envelope.append(("before", image))
        try:
            table = pa.json.read_json(
                pa.BufferReader(data),
                pa.json.ReadOptions(use_threads=False, block_size=max(1 << 20, min(len(text) + 1, 64 << 20))),
                pa.json.ParseOptions(
                    explicit_schema=pa.schema(envelope),
                    unexpected_field_behavior="infer" if self.unknown else "ignore",
                ),
            )
            table = repair_rows(table)
            images = _struct_fields(table["after"].combine_chunks())
            before = _struct_fields(table["before"].combine_chunks()) if "before" in table.column_names else {}
        except (pa.ArrowException, UnicodeDecodeError):
            return None
        op = table["op"].combine_chunks()
        if len(table) != len(some) or op.null_count:
            return None
        after = table["after"].combine_chunks()
        has_row = after.is_valid().to_numpy(zero_copy_only=False)
        missing_names = self._absent_columns(images, text)
        lacking = self._missing_value_masks(some, text, images, missing_names, has_row)
        for name in missing_names:
            del images[name]
        self._record_unknown_columns(some)
        try:
            for image in (images, before):
                image |= {name: decimals_to_strings(image[name]) for name in self._scaled if name in image}
        except UNFIT:
            return None
        return ChangeEvents(
            some, op, images, has_row, before, lacking, _source_fields(table["source"].combine_chunks())
        )

    def _missing_value_masks(
        self,
        some: KafkaConnectMessages,
        text: bytes,
        images: Mapping[str, pa.Array],
        missing_names: Collection[str],
        has_row: np.ndarray,
    ) -> dict[str, np.ndarray]:
        # Arrow's reader returns null for a missing value. If a column has nulls, a second pass over the text finds the
        # nulls that are written in it.
        if not has_row.any():
            return {}
        masks = dict.fromkeys((*missing_names, *(name for name, kind in self.spelt.items() if kind is None)), has_row)
        nulls = {
            name: values.is_null().to_numpy(zero_copy_only=False) & has_row
            for name, values in images.items()
            if name not in masks and values.null_count
        }
        nulls = {name: mask for name, mask in nulls.items() if mask.any()}
        if (descriptions := read_column_descriptions(some.schema, "after")) is not None:
            masks |= {name: has_row for name in nulls if name not in descriptions}
        elif nulls:
            counts = {name: images[name].filter(pa.array(has_row)).null_count for name in nulls}
            for name, written in _explicit_null_masks(text, counts).items():
                if (mask := nulls[name] & ~written).any():
                    masks[name] = mask
        return masks

    def _record_unknown_columns(self, some: KafkaConnectMessages) -> None:
        # Arrow's reader ignores unknown columns silently. A schema names all columns. Without a schema, every hundredth
        # event and the last one are inspected.
        if self.unknown:
            return
        descriptions = read_column_descriptions(some.schema, "after")
        if descriptions is not None:
            self.left_out.update(name for name in descriptions if name not in self.known)
            return
        for payload in (*some.payloads[::_INSPECTED_STEP], some.payloads[-1]):
            try:
                after = json.loads(payload).get("after") or {}
            except ValueError:  # Arrow's reader accepts some text that is not JSON
                continue
            self.left_out.update(name for name in after if name not in self.known)

    def _absent_columns(self, images: Mapping[str, pa.Array], text: bytes) -> list[str]:
        # Arrow fills these columns with nulls.
        empty = [name for name, values in images.items() if values.null_count == len(values)]
        return [
            name
            for name in empty
            if not re.search(re.escape(json.dumps(name, ensure_ascii=False).encode()) + rb"\s*:", text)
        ]

    def _decode_one_by_one(self, some: KafkaConnectMessages, bad: BadMessages) -> Iterator[ChangeEvents]:
        # Invalid events are recorded in `bad`.
        kept, ops, afters, befores, sources = list[int](), list[str](), list[Any](), list[Any](), list[Any]()
        for index, payload in enumerate(some.payloads):
            try:
                event = json.loads(payload, parse_float=Decimal)
                if isinstance(event, dict) and event.keys() == {"schema", "payload"}:
                    # the schema defines the meaning of values, so it must not be ignored
                    if event["schema"] is not None:
                        raise ValueError("Schema of the message must come before the payload")
                    event = event["payload"]
                if self._is_without_change(event):
                    self.skipped += 1
                    continue
                images = [self._encode_image(event.get(name)) for name in ("before", "after")]
                source = event.get("source") or {}
                position_fields = {field.name: source.get(field.name) for field in SOURCE}
                if invalid_fields := [item for item in position_fields.items() if not _is_valid_source_value(*item)]:
                    raise ValueError(
                        f"Field source.{invalid_fields[0][0]} has the invalid value {printable(invalid_fields[0][1])}"
                    )
                event["op"].encode()
            except (*UNFIT, AttributeError, TypeError, KeyError) as problem:
                bad.note(some.numbers[index], _error_text(problem), some.values[index])
                continue
            kept.append(index)
            ops.append(event["op"])
            befores.append(images[0])
            afters.append(images[1])
            sources.append(position_fields)
        if not kept:
            return

        def place(index: int) -> str:
            return f"message {bad.place(some.numbers[kept[index]], some.values[kept[index]])}"

        names = dict.fromkeys(name for image in (*befores, *afters) if image for name in image)
        after, before = (
            {
                name: self._column_array(name, [image.get(name) if image else None for image in images], place)
                for name in names
            }
            for images in (afters, befores)
        )
        picked = some.picked(kept)
        has_row = np.array([image is not None for image in afters])
        lacking = {
            name: mask
            for name in {*names, *self.known}
            if (mask := np.array([image is not None and name not in image for image in afters])).any()
        }
        op = pa.array(ops, pa.string())
        yield ChangeEvents(picked, op, after, has_row, before, lacking, _source_fields(pa.array(sources, SOURCE)))

    def _is_without_change(self, event: Any) -> bool:
        # Valid Debezium messages without a change are heartbeats, for example. Raises ValueError for a message that
        # Debezium does not send.
        if not isinstance(event, dict):
            raise ValueError("Message is not a JSON object")
        if isinstance(event.get("op"), str):
            return False
        if changes_no_row(event.keys()):
            return True
        raise ValueError("Message is not a change event, because it lacks the field op")

    def _encode_image(self, image: Any) -> dict[str, Any] | None:
        # Raises ValueError for a value that does not match its column.
        if image is None:
            return None
        if not isinstance(image, dict):
            raise ValueError(f"Row {printable(image)} of the message is not a JSON object")
        values = {}
        for name, value in image.items():
            field = self.known.get(name)
            if field is None:
                if self.unknown:
                    values[name] = float(value) if isinstance(value, Decimal) else value
                else:
                    self.left_out.add(name)
                continue
            try:
                values[name] = convert_json_value(value, field.type)
                if is_scaled_decimal_object(value) and not pa.types.is_struct(field.type):
                    self._scaled.add(name)  # later values of the column are scaled too
            except UNFIT as problem:
                raise ValueError(f"Column {name!r}: {_error_text(problem)}") from None
        return values

    def _column_array(self, name: str, values: list[Any], place: Callable[[int], str]) -> pa.Array:
        # `place` returns the location of a value's event, for the error. Raises ColumnError for values of several
        # types.
        texts = {value for value in values if isinstance(value, str)}
        if name not in self.known and texts <= FLOATS.keys() and any(isinstance(value, float) for value in values):
            values = [FLOATS.get(value, value) if isinstance(value, str) else value for value in values]
        try:
            return pa.array(values, self.spelt.get(name))
        except UNFIT as problem:
            first_indexes = dict[str, int]()
            for index, value in enumerate(values):
                if (kind := _TYPES.get(type(value))) is not None:
                    first_indexes.setdefault(kind, index)
            if len(first_indexes) < 2:
                raise ColumnError(
                    f"Column {name!r} is not in the table, and has a value without a known type: {problem}. "
                    "Add the column to the table first.",
                    column=name,
                ) from None
            problem_of_types = several_types_error(
                name, list(first_indexes), [place(index) for index in first_indexes.values()]
            )
            types = describe_conflicting_types(problem_of_types)
            raise ColumnError(
                f"Column {name!r} is not in the table, and has values of several types: {types}. Add the column to the "
                "table first.",
                **problem_of_types.details,
            ) from None


def changes_no_row(names: Set[str]) -> bool:
    """Check whether a message changes no row.

    Examples are heartbeats, transaction markers and schema changes.
    """
    return names == {"ts_ms"} or {"status", "id"} <= names or "ddl" in names


def _explicit_null_masks(text: bytes, counts: Mapping[str, int]) -> dict[str, np.ndarray]:
    # In contrast, an event may lack the column. `counts` contains for each column the number of rows after a change
    # with a null value, explicit or missing. Columns whose nulls are all explicit are left out.
    compact = not _has_spaces_around_colons(text)
    if compact and b'"before":{' not in text:  # every written null is in a row after a change, or in a struct
        counts = {name: count for name, count in counts.items() if text.count(_null_field_text(name)) != count}
    if not counts:
        return {}
    names, renamed = list(counts), text
    for index, name in enumerate(names):
        for ascii in _ASCII_CHOICES:
            mark = b'"null of %d":1' % index
            if compact:
                renamed = renamed.replace(_null_field_text(name, ascii), mark)
            else:
                encoding = re.escape(json.dumps(name, ensure_ascii=ascii).encode())
                renamed = re.sub(encoding + rb"\s*:\s*null", mark, renamed)
    image = pa.struct([(f"null of {index}", pa.int8()) for index in range(len(names))])
    table = pa.json.read_json(
        pa.BufferReader(renamed),
        pa.json.ReadOptions(use_threads=False, block_size=max(1 << 20, min(len(renamed) + 1, 64 << 20))),
        pa.json.ParseOptions(explicit_schema=pa.schema([("after", image)]), unexpected_field_behavior="ignore"),
    )
    after = table["after"].combine_chunks()
    return {
        name: pc.struct_field(after, [index]).is_valid().to_numpy(zero_copy_only=False)
        for index, name in enumerate(names)
    }


def _has_spaces_around_colons(text: bytes) -> bool:
    data = np.frombuffer(text, np.uint8)
    quote, space = data == ord('"'), data <= ord(" ")
    return bool((quote[:-2] & (data[1:-1] == ord(":")) & space[2:]).any() or (quote[:-1] & space[1:]).any())


def _has_non_null_field(text: bytes, name: str) -> bool:
    encoding = re.escape(json.dumps(name, ensure_ascii=False).encode())
    return re.search(encoding + rb"\s*:\s*(?!null)\S", text) is not None


def _null_field_text(name: str, ascii: bool = False) -> bytes:
    return json.dumps(name, ensure_ascii=ascii).encode() + b":null"


def _source_fields(source: pa.Array) -> dict[str, pa.Array]:
    # Other fields are ignored, because their names may be invalid UTF-8.
    return {field.name: pc.struct_field(source, [source.type.get_field_index(field.name)]) for field in SOURCE}


def _is_valid_source_value(name: str, value: Any) -> bool:
    # Integers must be within the range of 64 bits.
    if isinstance(value, str):
        value.encode()  # raises for an unpaired surrogate
    elif isinstance(value, bool) or isinstance(value, int) and value.bit_length() > 63:
        return False
    return isinstance(value, _SOURCE_TYPES[name])


def _struct_fields(values: pa.Array) -> dict[str, pa.Array]:
    return {field.name: pc.struct_field(values, [index]) for index, field in enumerate(values.type)}


def _error_text(problem: BaseException) -> str:
    if isinstance(problem, json.JSONDecodeError):
        return f"no JSON object: {problem}"
    return str(problem).partition("\n")[0] or type(problem).__name__


__all__ = ["SOURCE", "UPDATE", "EventReader", "ChangeEvents", "changes_no_row"]
