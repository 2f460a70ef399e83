"""Hooks are told of each commit that this process makes, after it, and whatever they do, the commit stands."""

from __future__ import annotations

import http.server
import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hoodoo

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])


def row(key: str, v: int = 0, day: str = "a") -> dict[str, Any]:
    return {"id": key, "day": day, "v": v}


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", SCHEMA, key="id", partition_by="day")


@pytest.fixture
def hooked() -> Iterator[Callable[..., None]]:
    """on_commit, of which nothing is left when the test ends."""
    taken: list[Callable[[], None]] = []
    yield lambda *given: taken.append(hoodoo.on_commit(*given))
    for take_back in taken:
        take_back()


def test_a_hook_is_told_of_every_write_of_rows_after_its_commit(
    table: hoodoo.Table, hooked: Callable[..., None]
) -> None:
    told: list[hoodoo.CommitEvent] = []
    seen: list[int] = []
    hooked(told.append)
    hooked(lambda event: seen.append(hoodoo.open(event.path).scan().count()))
    results = [
        table.upsert([row("a"), row("b", day="b")]),
        table.insert([row("c")]),
        table.update({"v": "v + 1"}),
        table.merge([row("a", 5)]).when_matched_update_all().execute(),
        table.delete(["c"]),
        table.delete(where="v = 5"),
        table.insert_overwrite([row("x"), row("y")]),
        table.delete_partitions(["b"]),
    ]
    assert [(one.path, one.position, one.instant) for one in told] == [
        (table.path, str(one.cursor), one.instant) for one in results
    ]
    assert [(one.inserted, one.updated, one.deleted, one.files) for one in told] == [
        (one.inserted, one.updated, one.deleted, one.files) for one in results
    ]
    assert seen == [2, 3, 3, 3, 2, 1, 3, 2]


def test_a_hook_is_told_of_nothing_where_nothing_was_committed(
    table: hoodoo.Table, hooked: Callable[..., None]
) -> None:
    table.upsert([row("a")], transaction=("job", 1))
    told: list[hoodoo.CommitEvent] = []
    hooked(told.append)
    assert table.upsert([row("b")], transaction=("job", 1)).skipped
    table.upsert([])
    table.delete(["none"])
    table.update({"v": "v"})
    with pytest.raises(hoodoo.KeyExists):
        table.insert([row("a")])
    assert told == []


def test_table_services_are_no_writes_of_rows(table: hoodoo.Table, hooked: Callable[..., None]) -> None:
    table.upsert([row("a")])
    table.upsert([row("a", 1)])
    told: list[hoodoo.CommitEvent] = []
    hooked(told.append)
    table.compact()
    table.maintenance.clean()
    assert told == []


def test_a_hook_may_be_for_one_table_and_is_taken_back(
    table: hoodoo.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = hoodoo.create(tmp_path / "other", SCHEMA, key="id")
    told: list[str] = []
    monkeypatch.chdir(tmp_path)
    take_back = hoodoo.on_commit(lambda event: told.append(event.path), "t/")
    try:
        table.upsert([row("a")])
        other.upsert([row("a")])
        assert told == [table.path]
    finally:
        take_back()
    table.upsert([row("b")])
    take_back()
    assert told == [table.path]


def test_a_hook_of_a_table_hears_of_commits_through_a_link(tmp_path: Path, hooked: Callable[..., None]) -> None:
    events: list[Any] = []
    table = hoodoo.create(tmp_path / "t", "id bigint", key="id")
    (tmp_path / "link").symlink_to(tmp_path / "t")
    hooked(events.append, tmp_path / "link")
    hooked(events.append, tmp_path / "t")
    table.insert([{"id": 1}])
    hoodoo.open(tmp_path / "link").insert([{"id": 2}])
    assert len(events) == 4


def test_a_hook_that_fails_is_logged_and_the_others_are_told(
    table: hoodoo.Table, hooked: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    told: list[hoodoo.CommitEvent] = []

    def broken(event: hoodoo.CommitEvent) -> None:
        raise RuntimeError("token=abc is wrong")

    hooked(broken)
    hooked("http://user:secret@127.0.0.1:1/")  # no server has this port
    hooked(told.append)
    with caplog.at_level(logging.WARNING, "hoodoo.hooks"):
        result = table.upsert([row("a")])
    assert (result.inserted, len(told), table.scan().count()) == (1, 1, 1)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "RuntimeError" in caplog.text and result.instant in caplog.text
    assert "secret" not in caplog.text and "abc" not in caplog.text


def test_commits_that_a_hook_makes_are_told_to_nobody(
    table: hoodoo.Table, tmp_path: Path, hooked: Callable[..., None]
) -> None:
    """Else a hook that keeps a list of commits in a table would be told of its own."""
    audit = hoodoo.create(
        tmp_path / "audit", pa.schema([("instant", pa.string()), ("path", pa.string())]), key="instant"
    )
    hooked(lambda event: audit.insert([{"instant": event.instant, "path": event.path}]))
    first, second = table.upsert([row("a")]), table.upsert([row("b")])
    assert sorted(audit.scan().to_arrow()["instant"].to_pylist()) == [first.instant, second.instant]


def test_a_url_gets_the_event_as_json(table: hoodoo.Table, hooked: Callable[..., None]) -> None:
    got: list[tuple[str, str, dict[str, Any]]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers["Content-Type"], json.loads(body)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        hooked(f"http://127.0.0.1:{server.server_port}/commits")
        result = table.upsert([row("a"), row("b")])
        thread.join()
    assert [(path, kind) for path, kind, _ in got] == [("/commits", "application/json")]
    assert got[0][2] == {
        "path": table.path,
        "position": str(result.cursor),
        "instant": result.instant,
        "inserted": 2,
        "updated": 0,
        "deleted": 0,
        "exact": result.exact,
        "files": result.files,
        "bytes_written": result.bytes_written,
    }
    assert table.scan(as_of=got[0][2]["position"]).count() == 2


@pytest.mark.parametrize("hook", [None, 7, "ftp://host/", "commits", ["http://host/"]])
def test_what_cannot_be_told_is_refused(hook: Any) -> None:
    with pytest.raises(hoodoo.OptionError, match="on_commit needs a function or an http"):
        hoodoo.on_commit(hook)


@pytest.mark.parametrize("hook", ["http://", "https:///path", "http:// host/"])
def test_an_address_without_a_host_is_refused(hook: str) -> None:
    with pytest.raises(hoodoo.OptionError, match="on_commit needs a function or an http"):
        hoodoo.on_commit(hook)


def test_a_redirection_is_a_failure(
    table: hoodoo.Table, hooked: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """The request that comes of it is a GET without the event, and its answer was taken for a success."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        hooked(f"HTTP://127.0.0.1:{server.server_port}/commits")
        with caplog.at_level(logging.WARNING, "hoodoo.hooks"):
            table.upsert([row("a")])
        thread.join()
    assert asked == ["/commits"]
    assert "302" in caplog.text
