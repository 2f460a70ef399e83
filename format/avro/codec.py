"""Interface of the Avro codec for other packages: encoding of Arrow tables to Avro records, and decoding.

`encode` writes the records of hoodoo (every field is `["null", T]`), and `decode` reads the records of any Hudi writer.
"""

from hoodoo.format.avro.decode import decode_records
from hoodoo.format.avro.encode import encode_records

__all__ = ["decode_records", "encode_records"]
