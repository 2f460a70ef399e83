"""Base files in Parquet format."""
