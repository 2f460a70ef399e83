"""Debezium's events as Arrow has them: together by Arrow's reader, and what that refuses one by one.

An event is an envelope: what happened (`op`), the row after it and the row before it, and where the change stands in
the log of the database (`source`). Values are spelt as in JSON (debezium_values.py). Knows no keys, and makes no rows.
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
from hoodoo.sources.debezium_messages import Messages, objects_of
from hoodoo.sources.debezium_schemas import said_in
from hoodoo.sources.debezium_values import FLOATS, SCALED, UNFIT, is_scaled, plain, spelt, texts_of
from hoodoo.sources.json_messages import sound
from hoodoo.sources.one_type import seen, several_types

UPDATE = "u"
_BOTH = (False, True)
_LOOKED_AT = 100
_CAREFUL = 1_000  # messages that are looked at one by one where one of them is refused
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
_SAID = {field.name: (str if pa.types.is_string(field.type) else int, type(None)) for field in SOURCE}


@dataclass(frozen=True)
class Events:
    """Events as Arrow has them; values are spelt as in JSON.

    Attributes:
        of: The messages, one for each event.
        op: What happened.
        after: The row after it, by column; null in all of them where there is none.
        there: Is there a row after it?
        before: The row before it, by column, as far as the database logs it.
        lacking: By column, which rows after a change do not have the column; columns that all of them have are left
            out.
        source: Where the change stands in the log of the database.
    """

    of: Messages
    op: pa.Array
    after: Mapping[str, pa.Array]
    there: np.ndarray
    before: Mapping[str, pa.Array]
    lacking: Mapping[str, np.ndarray]
    source: Mapping[str, pa.Array]


class EventReader:
    """Reads events by the columns of a table.

    Attributes:
        known: The columns of the table that an event may have.
        spelt: How values of each are spelt; None where an event cannot bring them.
        left_out: Columns that the table does not have, and that nobody asked for, as far as they have been met.
        skipped: Messages that are no events, so far, such as heartbeats.
    """

    def __init__(self, known: dict[str, pa.Field], unknown: bool, before: bool) -> None:
        """Take what is asked for.

        Args:
            known: The columns of the table that an event may have.
            unknown: Are other columns wanted?
            before: Does the row before a change matter?
        """
        self.known, self.unknown = known, unknown
        self.spelt = {name: spelt(field.type) for name, field in known.items()}
        self._before = before
        self.left_out, self.skipped = set[str](), 0
        self._scaled = set[str]()

    def learn(self, name: str, kind: pa.DataType) -> None:
        """Read a column that the table does not have as if it had.

        Args:
            name: The column.
            kind: Its type.
        """
        self.known[name] = pa.field(name, kind)
        self.spelt[name] = spelt(kind)

    def events(self, some: Messages, bad: BadMessages) -> Iterator[Events]:
        """Read events: together, or in halves, and at last one by one.

        Args:
            some: Messages of one schema.
            bad: Where those go that are none.

        Yields:
            The events, in the order of the messages.
        """
        events = self._together(some)
        if events is not None:
            yield events
        elif len(some) > _CAREFUL:
            half = len(some) // 2
            yield from self.events(some.part(0, half), bad)
            yield from self.events(some.part(half, len(some)), bad)
        else:
            yield from self._one_by_one(some, bad)

    def _together(self, some: Messages) -> Events | None:
        """Decode envelopes by Arrow's reader; None where it refuses one, or an envelope says not what it is."""
        text = objects_of(some.payloads)
        if text is None:
            return None
        data = pa.py_buffer(text)
        kinds = {name: kind for name, kind in self.spelt.items() if kind is not None}
        if any(_has_value(text, name) for name in self.spelt.keys() - kinds.keys()):
            return None
        image = pa.struct([(name, SCALED if name in self._scaled else kind) for name, kind in kinds.items()])
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
            table = sound(table)
            images = _children(table["after"].combine_chunks())
            before = _children(table["before"].combine_chunks()) if "before" in table.column_names else {}
        except (pa.ArrowException, UnicodeDecodeError):
            return None
        op = table["op"].combine_chunks()
        if len(table) != len(some) or op.null_count:
            return None
        after = table["after"].combine_chunks()
        there = after.is_valid().to_numpy(zero_copy_only=False)
        unsaid = self._never_said(images, text)
        lacking = self._lacking(some, text, images, unsaid, there)
        for name in unsaid:
            del images[name]
        self._look_for_others(some)
        try:
            for image in (images, before):
                image |= {name: texts_of(image[name]) for name in self._scaled if name in image}
        except UNFIT:
            return None
        return Events(some, op, images, there, before, lacking, _places(table["source"].combine_chunks()))

    def _lacking(
        self,
        some: Messages,
        text: bytes,
        images: Mapping[str, pa.Array],
        unsaid: Collection[str],
        there: np.ndarray,
    ) -> dict[str, np.ndarray]:
        """Find out which rows after a change do not have a column. Arrow's reader makes nulls of what is not there, so
        where there are nulls, those that are written in the text are found by another reading.
        """
        if not there.any():
            return {}
        found = dict.fromkeys((*unsaid, *(name for name, kind in self.spelt.items() if kind is None)), there)
        nulls = {
            name: values.is_null().to_numpy(zero_copy_only=False) & there
            for name, values in images.items()
            if name not in found and values.null_count
        }
        nulls = {name: mask for name, mask in nulls.items() if mask.any()}
        if (said := said_in(some.schema, "after")) is not None:
            found |= {name: there for name in nulls if name not in said}
        elif nulls:
            counts = {name: images[name].filter(pa.array(there)).null_count for name in nulls}
            for name, written in _written_nulls(text, counts).items():
                if (mask := nulls[name] & ~written).any():
                    found[name] = mask
        return found

    def _look_for_others(self, some: Messages) -> None:
        """Note columns that the table does not have, where they are left out: Arrow's reader passes over them unseen.
        A schema names all; without one, every hundredth event and the last one are looked at.
        """
        if self.unknown:
            return
        said = said_in(some.schema, "after")
        if said is not None:
            self.left_out.update(name for name in said if name not in self.known)
            return
        for payload in (*some.payloads[::_LOOKED_AT], some.payloads[-1]):
            try:
                after = json.loads(payload).get("after") or {}
            except ValueError:  # Arrow's reader takes some text that is no JSON
                continue
            self.left_out.update(name for name in after if name not in self.known)

    def _never_said(self, images: Mapping[str, pa.Array], text: bytes) -> list[str]:
        """Columns that occur in no envelope: Arrow makes nulls of them."""
        empty = [name for name, values in images.items() if values.null_count == len(values)]
        return [
            name
            for name in empty
            if not re.search(re.escape(json.dumps(name, ensure_ascii=False).encode()) + rb"\s*:", text)
        ]

    def _one_by_one(self, some: Messages, bad: BadMessages) -> Iterator[Events]:
        """Decode envelopes by Python, and note those that are none."""
        kept, ops, afters, befores, sources = list[int](), list[str](), list[Any](), list[Any](), list[Any]()
        for at, payload in enumerate(some.payloads):
            try:
                event = json.loads(payload, parse_float=Decimal)
                if isinstance(event, dict) and event.keys() == {"schema", "payload"}:
                    if event["schema"] is not None:  # it says what values are, so that it is never left aside
                        raise ValueError("the schema does not stand before the payload")
                    event = event["payload"]
                if self._is_none(event):
                    self.skipped += 1
                    continue
                images = [self._plain_image(event.get(name)) for name in ("before", "after")]
                source = event.get("source") or {}
                where = {field.name: source.get(field.name) for field in SOURCE}
                if strange := [one for one in where.items() if not _is_sound(*one)]:
                    raise ValueError(f"source.{strange[0][0]} is {printable(strange[0][1])}")
                event["op"].encode()
            except (*UNFIT, AttributeError, TypeError, KeyError) as problem:
                bad.note(some.numbers[at], _why(problem), some.values[at])
                continue
            kept.append(at)
            ops.append(event["op"])
            befores.append(images[0])
            afters.append(images[1])
            sources.append(where)
        if not kept:
            return

        def place(at: int) -> str:
            return f"message {bad.place(some.numbers[kept[at]], some.values[kept[at]])}"

        names = dict.fromkeys(name for image in (*befores, *afters) if image for name in image)
        after, before = (
            {
                name: self._column(name, [image.get(name) if image else None for image in images], place)
                for name in names
            }
            for images in (afters, befores)
        )
        picked = some.picked(kept)
        there = np.array([image is not None for image in afters])
        lacking = {
            name: mask
            for name in {*names, *self.known}
            if (mask := np.array([image is not None and name not in image for image in afters])).any()
        }
        op = pa.array(ops, pa.string())
        yield Events(picked, op, after, there, before, lacking, _places(pa.array(sources, SOURCE)))

    def _is_none(self, event: Any) -> bool:
        """Is this a message that changes no row: a heartbeat, the mark of a transaction? Raises ValueError where it is
        nothing that Debezium sends.
        """
        if not isinstance(event, dict):
            raise ValueError("no JSON object")
        if isinstance(event.get("op"), str):
            return False
        if is_none(event.keys()):
            return True
        raise ValueError("no change event: it has no op")

    def _plain_image(self, image: Any) -> dict[str, Any] | None:
        """The image of a row, with values as `spelt` says. Raises ValueError."""
        if image is None:
            return None
        if not isinstance(image, dict):
            raise ValueError(f"{printable(image)} is no row")
        found = {}
        for name, value in image.items():
            field = self.known.get(name)
            if field is None:
                if self.unknown:
                    found[name] = float(value) if isinstance(value, Decimal) else value
                else:
                    self.left_out.add(name)
                continue
            try:
                found[name] = plain(value, field.type)
                if is_scaled(value) and not pa.types.is_struct(field.type):
                    self._scaled.add(name)  # so are those that come
            except UNFIT as problem:
                raise ValueError(f"Column {name!r}: {_why(problem)}") from None
        return found

    def _column(self, name: str, values: list[Any], place: Callable[[int], str]) -> pa.Array:
        """Values as a column. place: where the event of each stands. Raises ColumnError."""
        texts = {value for value in values if isinstance(value, str)}
        if name not in self.known and texts <= FLOATS.keys() and any(isinstance(value, float) for value in values):
            values = [FLOATS.get(value, value) if isinstance(value, str) else value for value in values]
        try:
            return pa.array(values, self.spelt.get(name))
        except UNFIT as problem:
            first = dict[str, int]()
            for at, value in enumerate(values):
                if (kind := _TYPES.get(type(value))) is not None:
                    first.setdefault(kind, at)
            if len(first) < 2:
                raise ColumnError(
                    f"Column {name!r} is not in the table, and has a value without a known type: {problem}. "
                    "Add the column to the table first.",
                    column=name,
                ) from None
            found = several_types(name, list(first), [place(at) for at in first.values()])
            raise ColumnError(
                f"Column {name!r} is not in the table, and has values of several types: {seen(found)}. Add the "
                "column to the table first.",
                **found.details,
            ) from None


def is_none(names: Set[str]) -> bool:
    """Tell whether a message without an op is one that changes no row.

    Args:
        names: The fields that it has.

    Returns:
        True for a heartbeat, the mark of a transaction, or a change of a schema.
    """
    return names == {"ts_ms"} or {"status", "id"} <= names or "ddl" in names


def _written_nulls(text: bytes, counts: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Find by column which rows after a change have a null that is written in the text of the events.

    Args:
        text: The events.
        counts: By column how many of these rows have a null, written or not.

    Returns:
        bool[n] by column. Columns whose nulls are all written are left out.
    """
    compact = not _has_spaces(text)
    if compact and b'"before":{' not in text:  # every written null is in a row after a change, or in a struct
        counts = {name: count for name, count in counts.items() if text.count(_null_of(name)) != count}
    if not counts:
        return {}
    names, renamed = list(counts), text
    for at, name in enumerate(names):
        for ascii in _BOTH:
            mark = b'"null of %d":1' % at
            if compact:
                renamed = renamed.replace(_null_of(name, ascii), mark)
            else:
                encoding = re.escape(json.dumps(name, ensure_ascii=ascii).encode())
                renamed = re.sub(encoding + rb"\s*:\s*null", mark, renamed)
    image = pa.struct([(f"null of {at}", pa.int8()) for at in range(len(names))])
    table = pa.json.read_json(
        pa.BufferReader(renamed),
        pa.json.ReadOptions(use_threads=False, block_size=max(1 << 20, min(len(renamed) + 1, 64 << 20))),
        pa.json.ParseOptions(explicit_schema=pa.schema([("after", image)]), unexpected_field_behavior="ignore"),
    )
    after = table["after"].combine_chunks()
    return {
        name: pc.struct_field(after, [at]).is_valid().to_numpy(zero_copy_only=False) for at, name in enumerate(names)
    }


def _has_spaces(text: bytes) -> bool:
    """Tell whether there may be space around a colon behind a name."""
    data = np.frombuffer(text, np.uint8)
    quote, space = data == ord('"'), data <= ord(" ")
    return bool((quote[:-2] & (data[1:-1] == ord(":")) & space[2:]).any() or (quote[:-1] & space[1:]).any())


def _has_value(text: bytes, name: str) -> bool:
    """Tell whether an event may have a value, other than null, of that name."""
    encoding = re.escape(json.dumps(name, ensure_ascii=False).encode())
    return re.search(encoding + rb"\s*:\s*(?!null)\S", text) is not None


def _null_of(name: str, ascii: bool = False) -> bytes:
    return json.dumps(name, ensure_ascii=ascii).encode() + b":null"


def _places(source: pa.Array) -> dict[str, pa.Array]:
    """What counts of `source`: names of others may be no text."""
    return {field.name: pc.struct_field(source, [source.type.get_field_index(field.name)]) for field in SOURCE}


def _is_sound(name: str, value: Any) -> bool:
    """Can Arrow hold this value of `source`?"""
    if isinstance(value, str):
        value.encode()  # raises for half a character
    elif isinstance(value, bool) or isinstance(value, int) and value.bit_length() > 63:
        return False
    return isinstance(value, _SAID[name])


def _children(values: pa.Array) -> dict[str, pa.Array]:
    """The fields of a struct, null where the struct is."""
    return {field.name: pc.struct_field(values, [at]) for at, field in enumerate(values.type)}


def _why(problem: BaseException) -> str:
    if isinstance(problem, json.JSONDecodeError):
        return f"no JSON object: {problem}"
    return str(problem).partition("\n")[0] or type(problem).__name__


__all__ = ["SOURCE", "UPDATE", "EventReader", "Events", "is_none"]
