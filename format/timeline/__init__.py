"""Codec for the files of Hudi's timeline: their Avro schemas and their bytes."""
