"""Codec for the files of Hudi's timeline, with their Avro schemas."""
