"""Codec for Thrift's compact protocol in Parquet footers.

A struct is a dict from field id to (type, value). A list is (element type, values). Unknown fields are kept, so that
decoding and encoding give the same bytes. Damaged bytes raise ValueError, and use memory proportional to their length.
"""

from __future__ import annotations

from typing import Any

from hoodoo.format import leb128

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_DEPTH_MAX = 32
Struct = dict[int, tuple[int, Any]]


def decode(data: bytes | memoryview) -> Struct:
    try:
        return _StructReader(bytes(data)).struct(0)
    except IndexError:
        raise ValueError("a Thrift struct is truncated") from None


def encode(struct: Struct) -> bytes:
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


class _StructReader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def varint(self) -> int:
        data, at = self.data, self.at
        value = data[at]
        at += 1
        if value > 127:
            value, shift = value & 127, 7
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                if byte < 128:
                    break
                shift += 7
                if shift > 63:
                    raise ValueError("a Thrift integer has too many bytes")
        self.at = at
        return value

    def number(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def take(self, size: int) -> bytes:
        self.at += size
        if self.at > len(self.data):
            raise IndexError
        return self.data[self.at - size : self.at]

    def value(self, kind: int, depth: int) -> Any:
        if kind in (I16, I32, I64):
            return self.number()
        if kind == BINARY:
            return self.take(self.varint())
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (LIST, SET):
            return self.list(depth + 1)
        if kind == BYTE:
            return self.take(1)
        if kind == DOUBLE:
            return self.take(8)
        raise ValueError(f"a Thrift field has the type {kind}, which Parquet does not use")

    def list(self, depth: int) -> tuple[int, list[Any]]:
        head = self.take(1)[0]
        kind, count = head & 15, head >> 4
        if count == 15:
            count = self.varint()
        if count > len(self.data) - self.at:
            raise ValueError("a Thrift list is truncated")
        element = BYTE if kind in (TRUE, FALSE) else kind
        return kind, [self.value(element, depth) for _ in range(count)]

    def struct(self, depth: int) -> Struct:
        if depth > _DEPTH_MAX:
            raise ValueError("a Thrift struct is nested too deeply")
        fields: Struct = {}
        number = 0
        while head := self.take(1)[0]:
            kind, step = head & 15, head >> 4
            number = number + step if step else self.number()
            fields[number] = (kind, kind == TRUE) if kind in (TRUE, FALSE) else (kind, self.value(kind, depth))
        return fields


def _write_number(out: bytearray, value: int) -> None:
    leb128.write(out, (value << 1) ^ (value >> 63))


def _write_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in (I16, I32, I64):
        _write_number(out, value)
    elif kind == BINARY:
        leb128.write(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in (LIST, SET):
        _write_list(out, *value)
    else:
        out += value  # a byte or a double, as it was read


def _write_list(out: bytearray, kind: int, values: list[Any]) -> None:
    if len(values) < 15:
        out.append(len(values) << 4 | kind)
    else:
        out.append(0xF0 | kind)
        leb128.write(out, len(values))
    for value in values:
        _write_value(out, BYTE if kind in (TRUE, FALSE) else kind, value)


def _write_struct(out: bytearray, struct: Struct) -> None:
    last = 0
    for number, (kind, value) in struct.items():
        step = number - last
        if 0 < step < 16:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _write_number(out, number)
        if kind not in (TRUE, FALSE):
            _write_value(out, kind, value)
        last = number
    out.append(0)
