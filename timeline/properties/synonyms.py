"""Synonyms of options in Hudi, Delta Lake and Iceberg.

The names are not accepted as aliases, because their meanings differ slightly.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_WORDS = {
    "key": (
        "primary_key primary_keys record_key record_keys recordkey recordkeys keys id_column unique_key merge_key "
        "recordkey_field recordkey_fields identifier_fields identifier_field_ids key_columns key_fields"
    ),
    "partition_by": (
        "partition partitions partition_columns partition_column partition_cols partition_fields partition_field "
        "partitioning partition_spec partitioned_by partition_path partitionpath partitionpath_field"
    ),
    "order_by": (
        "precombine precombine_field precombine_key pre_combine_field preCombineField ordering ordering_field "
        "ordering_fields ordering_column sequence_by order_column version_column event_time"
    ),
    "type": "table_type tabletype storage_type kind",
    "schema": "columns fields",
    "name": "table_name",
    "path": "location base_path uri table_path",
    "storage": "storage_options s3_options fs_options",
    "change_log": "cdc cdc_enabled change_data_feed enable_change_data_feed supplemental_logging_mode",
    "target_file_bytes": (
        "target_file_size max_file_size parquet_max_file_size target_file_size_bytes write_target_file_size_bytes"
    ),
    "row_group_rows": "row_group_size max_row_group_size parquet_block_size row_group_size_bytes",
    "compression": "compression_codec parquet_compression_codec codec",
    "log_format": "logfile_data_block_format log_block_format data_block_format",
    "compact_after_logs": "inline_max_delta_commits max_delta_commits compact_inline_max_delta_commits",
    "clean_every": "clean_max_commits cleaner_max_commits auto_clean clean_automatic",
    "retain_commits": "commits_retained cleaner_commits_retained min_snapshots_to_keep",
    "retain_versions": "fileversions_retained cleaner_fileversions_retained",
    "retain_hours": (
        "hours_retained cleaner_hours_retained retention_hours deleted_file_retention_duration max_snapshot_age_ms "
        "retention"
    ),
    "partition_ttl_hours": "partition_ttl_days_retain ttl partition_ttl",
    "archive_after_hours": "log_retention_duration metadata_delete_after_commit_enabled",
    "archive_keep_instants": "keep_min_commits keep_max_commits metadata_previous_versions_max",
    "checkpoint_every": "checkpoint_interval",
    "max_retries": "commit_retry_num_retries num_retries max_commit_attempts",
    # of reads and writes on Spark
    "mode": "query_type read_change_feed read_change_data_feed datasource_query_type",
    "as_of": "as_of_instant version_as_of timestamp_as_of snapshot_id as_of_timestamp version timestamp",
    "since": "begin_instanttime start_snapshot_id starting_version starting_timestamp start_timestamp start_commit",
    "until": "end_instanttime end_snapshot_id ending_version ending_timestamp end_timestamp end_commit",
    "operation": "write_operation save_mode",
    "transaction": "txn_app_id txn_version app_id",
    "where": "replace_where filter predicate condition",
    "duplicates": "drop_duplicates insert_drop_duplicates combine_before_upsert",
}
_PREFIX = re.compile(
    r"^(hoodie|hudi|delta|iceberg|write|read|datasource|table|commit|history|parquet|cleaner|compact|merge|metadata)_"
)


def _to_snake_case(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()).strip("_")


def _remove_separators(name: str) -> str:
    # Spark SQL converts `primaryKey` to `primarykey`.
    return _to_snake_case(name).replace("_", "")


_MEANINGS = {_remove_separators(word): ours for ours, words in _WORDS.items() for word in words.split()}


def translate_option_name(name: str, known: Collection[str]) -> str:
    plain, same = _to_snake_case(name[:200]), {_remove_separators(one): one for one in known}
    while plain:
        joined = _remove_separators(plain)
        if (option := _MEANINGS.get(joined, "")) in known:
            return option
        if joined in same:
            return same[joined]
        shorter = _PREFIX.sub("", plain)
        if shorter == plain:
            return ""
        plain = shorter
    return ""
