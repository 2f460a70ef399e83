"""Base files: Parquet with Hudi's meta columns and footers, statistics, and raw copies of row groups."""
