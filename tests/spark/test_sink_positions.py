"""A sink that says how far its stream has read: each commit has the offsets that Spark's own checkpoint has, and nobody
but Spark goes on from the checkpoint.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from patience import PATIENCE_S

import hoodoo
from hoodoo.errors import CommitConflict, EngineError, OptionError

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, key="id", clean_every=None)


def put(folder: Path, number: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{number}.json").write_text(json.dumps({"id": number, "v": f"v{number}"}) + "\n")


def run(session: Any, folder: Path, sink: Any, checkpoint: Path, where: str = "true") -> None:
    """Streams files, one a micro-batch, until none is left. Raises what ends the stream."""
    stream = session.readStream.schema("id long, v string").option("maxFilesPerTrigger", 1).json(str(folder))
    writer = stream.where(where).writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(int(PATIENCE_S))
    finally:
        query.stop()


def offsets(checkpoint: Path) -> dict[int, list[Any]]:
    """What Spark's checkpoint says of each batch: its files have two lines before the offsets."""
    files = [one for one in (checkpoint / "offsets").iterdir() if one.name.isdigit()]
    return {int(one.name): [json.loads(line) for line in one.read_text().splitlines()[2:]] for one in files}


def said(table: hoodoo.Table, name: str = "files") -> tuple[int, Any]:
    at = table.inspect.application(name)
    return at.version, json.loads(at.position)


def test_each_commit_has_the_offsets_of_sparks_checkpoint(spark: Any, table: hoodoo.Table, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    for number in range(3):
        put(folder, number)
    sink = table.sink("files", positions=True)
    run(spark, folder, sink, checkpoint)
    written = offsets(checkpoint)
    assert sorted(written) == [0, 1, 2]
    assert said(table) == (2, {"source": "spark", "offsets": written[2]})
    put(folder, 3)
    run(spark, folder, sink, checkpoint)
    assert said(table) == (3, {"source": "spark", "offsets": offsets(checkpoint)[3]}) and offsets(checkpoint)[3]
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == [0, 1, 2, 3]
    at = table.cursor
    for one in (checkpoint / "commits").glob("*3*"):
        one.unlink()  # the lights went out after the table's commit, before Spark's
    run(spark, folder, sink, checkpoint)
    assert table.cursor == at


def test_a_batch_of_which_no_row_is_left_moves_the_position_too(
    spark: Any, table: hoodoo.Table, tmp_path: Path
) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    for number in range(2):
        put(folder, number)
    run(spark, folder, table.sink("files", positions=True), checkpoint, where="id < 0")
    assert said(table) == (1, {"source": "spark", "offsets": offsets(checkpoint)[1]}) and table.scan().count() == 0


def test_a_sink_that_had_no_positions_before_gets_them(spark: Any, table: hoodoo.Table, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    put(folder, 0)
    run(spark, folder, table.sink("files"), checkpoint)
    assert table.inspect.application("files").position == ""
    put(folder, 1)
    run(spark, folder, table.sink("files", positions=True), checkpoint)
    assert said(table) == (1, {"source": "spark", "offsets": offsets(checkpoint)[1]})


def test_another_checkpoint_under_the_name_of_a_sink_is_refused(
    spark: Any, table: hoodoo.Table, tmp_path: Path
) -> None:
    folder, others = tmp_path / "in", tmp_path / "others"
    put(folder, 0)
    put(others, 7)
    put(others, 8)
    run(spark, folder, table.sink("files", positions=True), tmp_path / "checkpoint")
    at = table.cursor
    sink = table.sink("files", positions=True)
    with pytest.raises(CommitConflict, match="The checkpoint is new, .* Give this sink another name"):
        sink._create_transaction('[{"logOffset":41}]', 0)
    with pytest.raises(CommitConflict, match="Sink 'files' is at batch 0"):
        sink._create_transaction('[{"logOffset":41}]', 2)
    run(spark, others, table.sink("others"), tmp_path / "of others")
    with pytest.raises(Exception, match="Sink 'new' is at batch -1"):
        put(others, 9)
        run(spark, others, table.sink("new", positions=True), tmp_path / "of others")
    assert table.inspect.application("new").version == -1 and table.cursor.seq == at.seq + 2


def test_a_new_checkpoint_under_the_name_of_a_sink_with_several_batches_is_told_what_to_do(
    spark: Any, table: hoodoo.Table, tmp_path: Path
) -> None:
    """It was told of another process that came first, of which there was none."""
    folder = tmp_path / "in"
    for number in range(3):
        put(folder, number)
    run(spark, folder, table.sink("files", positions=True), tmp_path / "checkpoint")
    at = table.cursor
    with pytest.raises(Exception, match="Sink 'files' is at batch 2 .* Give this sink another name"):
        run(spark, folder, table.sink("files", positions=True), tmp_path / "new")
    with pytest.raises(CommitConflict, match="Give the sink another name, and the stream a new checkpoint"):
        table.sink("files", positions=True)._create_transaction('[{"logOffset":41}]', 1)
    assert table.cursor == at
    run(spark, folder, table.sink("others", positions=True), tmp_path / "of others")
    assert said(table, "others")[0] == 2


def test_what_comes_from_no_stream_has_no_position(spark: Any, connected: Any, table: hoodoo.Table) -> None:
    sink = table.sink("files", positions=True)
    with pytest.raises(EngineError, match="DataFrame does not belong to a stream"):
        sink(spark.sql("SELECT 1L id, 'a' v"), 0)
    with pytest.raises(EngineError, match="not supported on Spark Connect"):
        sink(connected.sql("SELECT 1L id, 'a' v"), 0)
    with pytest.raises(OptionError, match="positions"):
        table.sink("files", positions="yes")  # type: ignore[arg-type]
    assert table.inspect.application("files").version == -1
