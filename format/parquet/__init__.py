"""Base files: Parquet files with Hudi's meta columns and footers, their statistics, and raw copies of row groups."""
