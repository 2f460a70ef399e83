"""Codec for files of Hudi's timeline."""
