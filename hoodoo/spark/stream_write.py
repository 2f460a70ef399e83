"""The writer of a stream, `writeStream.format("hoodoo")`: each micro-batch is one commit, exactly once.

Spark makes a writer for each micro-batch where it plans, and another one where it commits, so what tasks staged goes to
the commit with what they were told. Spark tells a writer the number of a micro-batch and no query; the query's id is in
its checkpoint. Knows no slot: what a number of another query means is decided by the commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from hoodoo.arguments import ApplicationVersion
from hoodoo.errors import EngineError, OptionError
from hoodoo.redact import printable
from hoodoo.spark.source_options import SparkStreamOptions
from hoodoo.spark.write import Job, job_of
from hoodoo.storage.store_of_path import open_store
from hoodoo.timeline.sinks import application_of
from hoodoo.writers.staging import staged

_METADATA = "metadata"
"""The file of a checkpoint in which Spark keeps the id of the query."""


@dataclass
class StreamMessage(WriterCommitMessage):
    """What a task sends to the commit.

    Attributes:
        rows: The rows that the task prepared or staged.
        job: What the task was told.
    """

    rows: staged.TaskRows
    job: Job


def query_of(checkpoint: str, storage: Mapping[str, Any]) -> str:
    """Read the id of the query that a checkpoint belongs to.

    Args:
        checkpoint: The location of the checkpoint, as Spark takes it.
        storage: Options of the store, where the checkpoint is on S3.

    Raises:
        EngineError: There is no such file, or it cannot be read.
    """
    try:
        return str(json.loads(_bytes_of(checkpoint, storage))["id"])
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as problem:
        raise EngineError(
            f"The query's id cannot be read from {printable(checkpoint)}/{_METADATA} ({type(problem).__name__}), and "
            "without it a batch cannot be told from one of another query. Put the checkpoint where the driver's Python "
            'can read it, or use foreachBatch(table.sink("name")).',
            checkpoint=checkpoint,
        ) from None


def _bytes_of(checkpoint: str, storage: Mapping[str, Any]) -> bytes:
    kind = urlsplit(checkpoint).scheme.lower()
    if kind in ("s3", "s3a"):
        return open_store(checkpoint, storage).get(_METADATA)
    if kind in ("", "file"):
        folder = unquote(urlsplit(checkpoint).path) if kind else checkpoint
        return (Path(folder) / _METADATA).read_bytes()
    from pyarrow import fs

    system, folder = fs.FileSystem.from_uri(checkpoint)
    with system.open_input_stream(f"{folder.rstrip('/')}/{_METADATA}") as file:
        return bytes(file.read())


def stream_planned(options: Mapping[str, str], schema: Any, overwrite: bool) -> HoodooStreamWriter:
    """Plan and check the write of a micro-batch.

    Args:
        options: The options by name, as Spark gives them.
        schema: The columns of the rows, as a StructType.
        overwrite: True if the output mode is 'complete', which is refused.

    Returns:
        The writer.

    Raises:
        OptionError: An option is unknown, lacks or has a value that it cannot have, or `overwrite` is True.
        ColumnError: A column has one field twice, or does not fit the table.
        TableNotFound: There is no table at the path.
    """
    if overwrite:
        raise OptionError(
            "outputMode('complete') replaces the table with each batch, which could mean the table or some partitions: "
            "use outputMode('append'), or foreachBatch with hoodoo.open(path).sink(name, 'insert_overwrite').",
            option="outputMode",
        )
    chosen = SparkStreamOptions.of(options)
    return HoodooStreamWriter(job_of(chosen.write, schema), chosen)


class HoodooStreamWriter(DataSourceStreamArrowWriter):
    """The writer of a micro-batch.

    Attributes:
        job: The write.
        options: What the stream asks for.
    """

    def __init__(self, job: Job, options: SparkStreamOptions) -> None:
        self.job, self.options = job, options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StreamMessage:
        """Prepare and stage the rows of a task.

        Args:
            iterator: The rows.

        Returns:
            What the task staged.

        Raises:
            DataError: A row cannot be written.
        """
        return StreamMessage(self.job.prepared(iterator), self.job)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Merge and commit what the tasks staged, unless this micro-batch was committed before.

        Args:
            messages: What each task staged.
            batchId: The number of the micro-batch.

        Raises:
            OptionError: The sink has a batch of this number or a later one from another query.
            EngineError: The id of the query cannot be read.
            KeyExists: An insert brings a key that the table has.
            HoodooError: What the method of the table raises.
        """
        told = [one for one in messages if isinstance(one, StreamMessage)]
        job = told[0].job if told else self.job
        try:
            query = query_of(self.options.checkpoint, self.options.write.storage)
        except EngineError:
            job.discard()
            raise
        job.commit([one.rows for one in told], ApplicationVersion(application_of(self.options.sink, query), batchId))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Delete what the tasks staged. What tasks staged that sent nothing, a sweep deletes.

        Args:
            messages: What each task staged.
            batchId: The number of the micro-batch.
        """
        for one in messages:
            if isinstance(one, StreamMessage):
                one.job.discard()
                return
