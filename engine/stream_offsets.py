"""Source offsets of a micro-batch of a Spark stream, read from the stream's checkpoint.

Spark's progress report only contains the offsets of the previous batch. Rows contain offsets only if none were
filtered. Spark itself resumes from the checkpoint.
"""

from __future__ import annotations

import json
from typing import Any

from hoodoo.errors import EngineError

_QUERY = "sql.streaming.queryId"  # Spark sets it on the thread that runs a query


def stream_offsets(frame: Any, batch_id: int) -> str:
    """Return the end offsets of a Spark micro-batch, as JSON with one entry per source.

    Args:
        frame: The frame of the micro-batch, as passed to `foreachBatch`.
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
            "Spark Connect does not tell how far a stream has read. Leave positions out of sink(), or run the stream "
            "in the process of the driver."
        )
    query = session.sparkContext.getLocalProperty(_QUERY)
    if query is None:
        raise EngineError("positions=True is for writeStream.foreachBatch(): this frame comes from no stream.")
    jvm = session.sparkContext._jvm
    running = session._jsparkSession.sharedState().activeStreamingQueries().get(jvm.java.util.UUID.fromString(query))
    written = running.offsetLog().get(batch_id) if running is not None else None
    if written is None or written.isEmpty():
        raise EngineError(f"The checkpoint of stream {query} has no offsets of batch {batch_id}.")
    offsets = written.get().offsets()
    said = [offsets.apply(at) for at in range(offsets.size())]
    return json.dumps([json.loads(one.get().json()) if one.isDefined() else None for one in said])


__all__ = ["stream_offsets"]
