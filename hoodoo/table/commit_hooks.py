"""Hooks that run after each commit.

The committing process calls a hook after the commit, at most once. If the process crashes in between, the hook is not
called. The commit is final even if a hook fails. The failure is only logged. This module is independent of how commits
are made.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TypeAlias

from hoodoo.errors import OptionError
from hoodoo.redact import printable, redact
from hoodoo.writers.committed import Committed

log = logging.getLogger("hoodoo.hooks")
_TIMEOUT_S = 10.0
_URL = re.compile(r"https?://[^\s/]+", re.IGNORECASE)


@dataclass(frozen=True)
class CommitEvent:
    """Description of a commit for commit hooks.

    Attributes:
        path: The full path of the table.
        position: The cursor of the commit as a string, which reads accept as a position.
        instant: The instant of the commit, 17 digits UTC.
        inserted: The number of new rows.
        updated: The number of rows that replaced an older version.
        deleted: The number of deleted rows.
        exact: False if the counts are estimates.
        files: The number of data files in the commit.
        bytes_written: The total size of the data files, in bytes.
    """

    path: str
    position: str
    instant: str
    inserted: int
    updated: int
    deleted: int
    exact: bool
    files: int
    bytes_written: int


Hook: TypeAlias = "Callable[[CommitEvent], object] | str"
"""A function, or an http:// or https:// URL that receives the event as JSON in a POST request."""


@dataclass(frozen=True, eq=False)
class _RegisteredHook:
    """Commit hook with its table."""

    hook: Hook
    path: str | None
    tell: Callable[[CommitEvent], object]


_lock = threading.Lock()
_registered: tuple[_RegisteredHook, ...] = ()
_telling = threading.local()


def on_commit(hook: Hook, path: str | os.PathLike[str] | None = None) -> Callable[[], None]:
    """Call a function or a URL after each commit.

    The hook runs in the writing thread, before the write returns. Commits made by a hook, by table services or by
    purges do not call hooks. `df.write` and `writeStream` of Spark commit in a separate Spark process, where this hook
    is not registered.

    Args:
        hook: A function that takes a CommitEvent, or a URL that receives the event as JSON. The timeout for a URL is 10
            seconds.
        path: The path of the table to watch. None (default): all tables.

    Returns:
        A function that removes the hook.

    Raises:
        OptionError: `hook` is neither a function nor a URL, or `path` is not a path.
    """
    global _registered
    if isinstance(hook, str) and _URL.match(hook):
        tell: Callable[[CommitEvent], object] = _PostToUrl(hook)
    elif callable(hook):
        tell = hook
    else:
        raise OptionError(
            f"on_commit needs a function or an http:// or https:// address, got {printable(redact(str(hook)))}.",
            option="hook",
        )
    if path is not None and not isinstance(path, (str, os.PathLike)):
        raise OptionError(f"Option path must be the path of a table, got {printable(path)}.", option="path")
    one = _RegisteredHook(hook, None if path is None else _absolute_path(str(path)), tell)

    def take_back() -> None:
        global _registered
        with _lock:
            _registered = tuple(other for other in _registered if other is not one)

    with _lock:
        _registered = (*_registered, one)
    return take_back


def call_commit_hooks(path: str, done: Committed) -> None:
    if not done.instant or not _registered or getattr(_telling, "now", False):
        return
    counts = (done.inserted, done.updated, done.deleted, done.exact, done.files, done.bytes_written)
    event = CommitEvent(path, str(done.cursor), done.instant, *counts)
    _telling.now = True
    try:
        for one in _registered:
            if one.path is None or _is_same_folder(one.path, path):
                _tell(one, event)
    finally:
        _telling.now = False


def _tell(one: _RegisteredHook, event: CommitEvent) -> None:
    try:
        one.tell(event)
    except Exception as problem:  # any error, because the commit is final
        named = redact(one.hook) if isinstance(one.hook, str) else printable(one.hook)
        log.warning(
            "Commit hook %s failed after commit %s of %s: %s: %s",
            named,
            event.instant,
            event.path,
            type(problem).__name__,
            redact(str(problem)),
        )


@dataclass(frozen=True)
class _PostToUrl:
    url: str

    def __call__(self, event: CommitEvent) -> None:
        import urllib.request  # slow import, and few hooks are URLs

        class NoRedirectHandler(urllib.request.HTTPRedirectHandler):  # a redirect would lose the event
            def redirect_request(self, *_: object) -> None:
                return None

        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url, json.dumps(asdict(event)).encode(), headers, method="POST")
        with urllib.request.build_opener(NoRedirectHandler).open(
            request, timeout=_TIMEOUT_S
        ):  # raises on an error status
            pass


def _is_same_folder(one: str, other: str) -> bool:
    return one == other or "://" not in one + other and os.path.realpath(one) == os.path.realpath(other)


def _absolute_path(path: str) -> str:
    return path.rstrip("/") if "://" in path else os.path.abspath(path)


__all__ = ["CommitEvent", "Hook", "on_commit", "call_commit_hooks"]
