"""Compaction: triggers, the choice of file groups, and the merge of logs into base files or larger logs."""
