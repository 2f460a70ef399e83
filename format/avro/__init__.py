"""Arrow columns as Avro records and back, without a Python object per row."""
