"""Codec between Arrow tables and Avro records.

`encode_records` writes hoodoo's records (every field is `["null", T]`), and `decode_records` reads the records of any
Hudi writer.
"""

from hoodoo.format.avro.decode import decode_records
from hoodoo.format.avro.encode import encode_records

__all__ = ["decode_records", "encode_records"]
