"""The files of Hudi's timeline: their schemas and their Avro bytes."""
