"""Creation of a new ingestion job."""

from __future__ import annotations

from typing import Any

from hoodoo.arguments import check_allowed_value, check_number
from hoodoo.errors import OptionError
from hoodoo.ingestion.job import Job
from hoodoo.ingestion.pace import JobSpeedLimit
from hoodoo.ingestion.reading import RowTransform, SourceReader
from hoodoo.ingestion.same_table import require_not_renamed, require_source_is_not_target
from hoodoo.ingestion.validated_source import ValidatedSource
from hoodoo.redact import printable
from hoodoo.sizes import convert_size_argument
from hoodoo.sources.source import Limits, Source
from hoodoo.table import Table
from hoodoo.writers.batches.write_options import BadRowLimits, limits_of

_OPERATIONS = ("upsert", "insert", "bulk_insert")


def ingest(
    source: Source,
    table: Table,
    name: str | None = None,
    operation: str = "upsert",
    transform: RowTransform | None = None,
    new_columns: str = "ignore",
    missing: str = "null",
    max_rows: int = 500_000,
    max_bytes: int | str = 512 << 20,
    on_bad_rows: str | BadRowLimits = "quarantine",
    min_seconds: float = 5.0,
    max_rows_per_second: float | None = None,
) -> Job:
    """Create a job that copies a source into a table.

    Each row is copied exactly once. Call `run` to start the job.

    Args:
        source: Source of the rows: one of `hoodoo.sources`, or an object with the methods of `hoodoo.sources.Source`.
        table: The table.
        name: Name that the table uses to store the position of the source. Jobs with one name are processes of one job.
            None (default): the name of the source.
        operation: 'upsert' (default) inserts rows with new keys and replaces rows with known keys. 'insert' and
            'bulk_insert' keep the stored rows.
        transform: Function that receives the rows of a batch as a pyarrow Table and returns the rows to write. An
            upsert deletes the rows whose `_hoodie_is_deleted` is true. None (default): the rows are not changed.
        new_columns: Handling of columns that the table does not have: 'ignore' (default) leaves them out, 'add' adds
            them to the table, 'fail' stops the job.
        missing: Handling of columns that a batch lacks and that have no default: 'null' (default) writes null, 'fail'
            stops the job, 'keep' lets an upsert keep the stored values.
        max_rows: Maximum number of rows in a batch, if the source can count rows in advance. Default 500,000.
        max_bytes: Decoded bytes of the source that are in memory at most, as a number or as a size such as '2GB'. A
            batch has a third of it, at least one item: the next batch is read while one batch is written from a sorted
            copy. The process needs about 200 MiB and three times `max_bytes`. Default 512 MiB.
        on_bad_rows: Handling of rows that the table cannot store: 'quarantine' (default) puts them into the quarantine
            of the table, unless a batch has more than 1,000 of them, or more than 1 % in a batch of 100 rows or more.
            To change these limits, pass `hoodoo.BadRowLimits(rows=..., share=...)`. 'fail' stops the job at a bad row.
        min_seconds: Minimum time between the starts of two commits of a continuous job (`run(once=False)`), in seconds.
            Default 5: at most 17,280 commits a day.
        max_rows_per_second: Maximum average number of rows per second, if the source can count rows in advance. None
            (default): no limit.

    Returns:
        The job.

    Raises:
        OptionError: An argument is invalid, the source is the table itself, or a job has read the source under another
            path.
    """
    bad_limits = limits_of(on_bad_rows) or BadRowLimits(rows=0)
    limits = Limits(
        check_number("max_rows", max_rows, 1, whole=True, optional=False),
        convert_size_argument("max_bytes", max_bytes),
        bad_limits.rows,
    )
    pace = JobSpeedLimit(
        check_number("min_seconds", min_seconds, 0, optional=False),
        check_number("max_rows_per_second", max_rows_per_second, 0),
    )
    if pace.rows_per_second == 0:
        raise OptionError(
            "Option max_rows_per_second is invalid: expected a number above 0, got 0. Pass None for no limit.",
            option="max_rows_per_second",
        )
    _require_valid_arguments(source, table, operation, transform, new_columns, missing)
    require_source_is_not_target(source, table)
    reading = SourceReader(ValidatedSource(source), table, operation, transform, new_columns, missing, bad_limits.rows)
    if name is None:
        require_not_renamed(source, table)
    named: Any = getattr(source, "name", None) if name is None else name
    return Job(reading, source, named, limits, bad_limits, pace)


def _require_valid_arguments(
    source: Any, table: Any, operation: str, transform: Any, new_columns: str, missing: str
) -> None:
    for method in ("plan", "read", "lag"):
        if not callable(getattr(source, method, None)):
            raise OptionError(
                "Option source is invalid: expected one of hoodoo.sources, such as hoodoo.sources.Files('landing'), "
                f"got {printable(source)}, which does not have the method {method}().",
                option="source",
            )
    if not isinstance(table, Table):
        raise OptionError(
            f"Option table is invalid: expected a table from hoodoo.open(), got {printable(table)}.", option="table"
        )
    if transform is not None and not callable(transform):
        raise OptionError(
            f"Option transform is invalid: expected a function of a pyarrow Table, got {printable(transform)}.",
            option="transform",
        )
    check_allowed_value("operation", operation, _OPERATIONS)
    check_allowed_value("new_columns", new_columns, ("ignore", "add", "fail"))
    check_allowed_value("missing", missing, ("null", "fail", "keep"))
    if missing == "keep" and operation != "upsert":
        raise OptionError(
            "missing='keep' requires operation='upsert'. Pass operation='upsert', or another value of missing.",
            option="missing",
        )


__all__ = ["ingest"]
