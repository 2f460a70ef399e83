"""Commits of Apache Hudi's streamer, without a row, and what instants say beside their rows."""

from __future__ import annotations

from pathlib import Path

from hoodoo.format.names import instant_of_ms, ms_of_instant
from hoodoo.format.timeline import avro
from hoodoo.timeline.hudi.commit_metadata import PLACE, REACHED


def instants(path: Path, action: str = "deltacommit") -> list[Path]:
    """The completed instants of an action, in order of completion."""
    return sorted((path / ".hoodie/timeline").glob(f"*_*.{action}"), key=lambda file: file.name[18:])


def said_beside(file: Path) -> dict[str, str]:
    """The extra metadata of an instant."""
    return dict(avro.decode_timeline_file(file.read_bytes())["extraMetadata"])


def places(path: Path) -> list[str]:
    """What each delta commit tells Hudi's streamer, in order; '' for nothing."""
    return [said_beside(file).get(PLACE, "") for file in instants(path)]


def streamer_commits(path: Path, text: str, key: str = PLACE) -> None:
    """Hudi's streamer commits a place under a key."""
    newest = instants(path)[-1]
    record = avro.decode_timeline_file(newest.read_bytes())
    kept = {name: value for name, value in record["extraMetadata"].items() if name not in (PLACE, REACHED)}
    record |= {"extraMetadata": kept | {key: text}, "partitionToWriteStats": {}}
    theirs = instant_of_ms(ms_of_instant(newest.name[18:35]) + 1)
    until = instant_of_ms(ms_of_instant(theirs) + 1)
    for state in ("requested", "inflight"):
        newest.with_name(f"{theirs}.deltacommit.{state}").write_bytes(b"")
    newest.with_name(f"{theirs}_{until}.deltacommit").write_bytes(
        avro.encode_timeline_file("HoodieCommitMetadata", record)
    )
