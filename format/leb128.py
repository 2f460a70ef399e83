"""Variable-length integers (LEB128), as in Avro and Thrift.

Callers handle the encoding of signs.
"""

from __future__ import annotations


def write(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def encoded(number: int) -> bytes:
    out = bytearray()
    write(out, number)
    return bytes(out)
