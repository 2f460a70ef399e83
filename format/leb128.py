"""Variable-length integers with seven bits per byte, lowest first (LEB128), as in Avro, Thrift and protocol buffers.

Callers handle the encoding of signs.
"""

from __future__ import annotations


def write(out: bytearray, number: int) -> None:
    """Append `number`, which must not be negative."""
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def encoded(number: int) -> bytes:
    """Return the bytes of `number`, which must not be negative."""
    out = bytearray()
    write(out, number)
    return bytes(out)
