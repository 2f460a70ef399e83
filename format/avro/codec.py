"""Arrow tables to Avro records and back: the one door to the column-wise codec.

The work is in `avro_encode` (what hoodoo writes: every field `["null", T]`) and `avro_decode` (what any Hudi writer
wrote).
"""

from hoodoo.format.avro.decode import decode_records
from hoodoo.format.avro.encode import encode_records

__all__ = ["decode_records", "encode_records"]
