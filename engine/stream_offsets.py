"""Source offsets of a Spark stream.

They belong to a micro-batch, and are read from the stream's checkpoint. The checkpoint is used because Spark itself
resumes from it. Spark's progress report only contains the offsets of the previous batch, and the rows of a batch do not
show the offsets of filtered rows.
"""

from __future__ import annotations

import json
from typing import Any

from hoodoo.errors import EngineError

_QUERY = "sql.streaming.queryId"  # Spark sets it on the thread that runs a query


def stream_offsets(frame: Any, batch_id: int) -> str:
    """Return the end offsets of a Spark micro-batch.

    Args:
        frame: The DataFrame of the micro-batch, as passed to `foreachBatch`.
        batch_id: The number of the micro-batch.

    Returns:
        A JSON array with the offset of each source, in Spark's format. For Kafka, this is {"topic": {"0": next
        offset}}.

    Raises:
        EngineError: The session is Spark Connect, which has no offsets, or the frame does not belong to a stream.
    """
    session = frame.sparkSession
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise EngineError(
            "positions=True is not supported on Spark Connect, which does not expose stream offsets. Remove positions "
            "from sink(), or run the stream in a classic session."
        )
    query = session.sparkContext.getLocalProperty(_QUERY)
    if query is None:
        raise EngineError(
            "The DataFrame does not belong to a stream. Use positions=True only in writeStream.foreachBatch()."
        )
    jvm = session.sparkContext._jvm
    running = session._jsparkSession.sharedState().activeStreamingQueries().get(jvm.java.util.UUID.fromString(query))
    written = running.offsetLog().get(batch_id) if running is not None else None
    if written is None or written.isEmpty():
        raise EngineError(
            f"Checkpoint of stream {query} does not contain the offsets of batch {batch_id}. Restart the stream."
        )
    offsets = written.get().offsets()
    source_offsets = [offsets.apply(index) for index in range(offsets.size())]
    return json.dumps([json.loads(offset.get().json()) if offset.isDefined() else None for offset in source_offsets])


__all__ = ["stream_offsets"]
