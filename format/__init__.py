"""File formats and file names of Apache Hudi tables of version 9."""
