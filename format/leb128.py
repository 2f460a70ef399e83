"""Whole numbers of variable length, seven bits a byte, the lowest first (LEB128): as Avro, Thrift and protocol buffers
have them. What a number means, and whether its sign was folded into it before, the callers know.
"""

from __future__ import annotations


def write(out: bytearray, number: int) -> None:
    """Append `number`, from 0."""
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def encoded(number: int) -> bytes:
    """Return the bytes of `number`, from 0."""
    out = bytearray()
    write(out, number)
    return bytes(out)
