"""Compaction: when, which file groups, and the merge of their logs into bases or larger logs."""
