"""Stream writes with `writeStream.format("hoodoo")`.

Spark creates one writer for planning a micro-batch and another one for its commit, so the messages of tasks contain the
job description. Spark passes the batch number to a writer, but not the query id, which is read from the checkpoint. The
commit handles batch numbers of other queries.
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
from hoodoo.spark.write import SparkWriteJob, create_write_job
from hoodoo.storage.store_of_path import open_store
from hoodoo.timeline.sinks import application_of
from hoodoo.writers.staging import staged

_METADATA = "metadata"
"""The checkpoint file in which Spark stores the query id."""


@dataclass
class StreamMessage(WriterCommitMessage):
    """Message from a Spark task to the commit of its micro-batch.

    Attributes:
        rows: The rows that the task prepared or staged.
        job: The description of the write, which includes the staging folder.
    """

    rows: staged.TaskRows
    job: SparkWriteJob


def read_query_id(checkpoint: str, storage: Mapping[str, Any]) -> str:
    """Read the id of the streaming query from its Spark checkpoint.

    Args:
        checkpoint: The location of the checkpoint, in Spark's format.
        storage: Store options for a checkpoint on S3.

    Raises:
        EngineError: The metadata file of the checkpoint does not exist or cannot be read.
    """
    try:
        return str(json.loads(_bytes_of(checkpoint, storage))["id"])
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as problem:
        raise EngineError(
            f"The query's id cannot be read from {printable(checkpoint)}/{_METADATA} "
            f"({type(problem).__name__}), but it is needed to distinguish batches of different queries. Put "
            'the checkpoint where the driver\'s Python can read it, or use foreachBatch(table.sink("name")).',
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


def create_stream_writer(options: Mapping[str, str], schema: Any, overwrite: bool) -> HoodooStreamWriter:
    """Create the writer of a micro-batch.

    Args:
        options: The options by name, as Spark passes them.
        schema: The columns of the rows, as a StructType.
        overwrite: True for output mode 'complete', which is rejected.

    Returns:
        The writer.

    Raises:
        OptionError: An option is unknown, missing or has an invalid value, or `overwrite` is True.
        ColumnError: A column has a duplicate field, or does not match the table.
        TableNotFound: There is no table at the path.
    """
    if overwrite:
        raise OptionError(
            "outputMode('complete') is ambiguous, because each batch could replace the table or some "
            "partitions. Use outputMode('append'), or foreachBatch with hoodoo.open(path).sink(name, "
            "'insert_overwrite').",
            option="outputMode",
        )
    chosen = SparkStreamOptions.parse(options)
    return HoodooStreamWriter(create_write_job(chosen.write, schema), chosen)


class HoodooStreamWriter(DataSourceStreamArrowWriter):
    """Writer of one micro-batch of a Spark stream.

    Attributes:
        job: The description of the write.
        options: The options of the stream.
    """

    def __init__(self, job: SparkWriteJob, options: SparkStreamOptions) -> None:
        self.job, self.options = job, options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StreamMessage:
        """Prepare the rows of one Spark task.

        Args:
            iterator: The rows.

        Returns:
            The message with the staged rows.

        Raises:
            DataError: A row is invalid.
        """
        return StreamMessage(self.job.prepared(iterator), self.job)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the rows of a micro-batch.

        Args:
            messages: The message of each task.
            batchId: The number of the micro-batch.

        Raises:
            OptionError: The sink already has a batch with this number or a later one from another query.
            EngineError: The id of the query cannot be read.
            KeyExists: An inserted key is already in the table.
            HoodooError: Any error that the table method raises.
        """
        told = [one for one in messages if isinstance(one, StreamMessage)]
        job = told[0].job if told else self.job
        try:
            query = read_query_id(self.options.checkpoint, self.options.write.storage)
        except EngineError:
            job.discard()
            raise
        job.commit([one.rows for one in told], ApplicationVersion(application_of(self.options.sink, query), batchId))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Delete the staged files of a failed micro-batch.

        If every task failed before it sent a message, orphan removal deletes the files later.

        Args:
            messages: The message of each task.
            batchId: The number of the micro-batch.
        """
        for one in messages:
            if isinstance(one, StreamMessage):
                one.job.discard()
                return
