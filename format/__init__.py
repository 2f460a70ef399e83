"""File formats of Apache Hudi tables."""
