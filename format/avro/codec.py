"""Arrow tables to Avro records and back. Other packages use the column-wise codec through this module.

The work is in `encode` (what hoodoo writes: every field `["null", T]`) and `decode` (what any Hudi writer wrote).
"""

from hoodoo.format.avro.decode import decode_records
from hoodoo.format.avro.encode import encode_records

__all__ = ["decode_records", "encode_records"]
