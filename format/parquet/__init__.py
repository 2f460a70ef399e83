"""Base files: Parquet files with Hudi's meta columns and footers."""
