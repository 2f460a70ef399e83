"""Hooks: what a program wants to be told of the commits that it makes. A hook is a function, or a URL that gets JSON.

A hook is told after the commit, by the process that committed, and at most once: a process that dies in between tells
nobody. A hook that fails is a line in the log, since the commit is final. Knows nothing of how commits are made.
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
from hoodoo.writers.operations import Committed

log = logging.getLogger("hoodoo.hooks")
_TIMEOUT_S = 10.0
_URL = re.compile(r"https?://[^\s/]+", re.IGNORECASE)


@dataclass(frozen=True)
class CommitEvent:
    """A commit of rows, as hooks are told of it.

    Attributes:
        path: The full path of the table.
        position: The cursor of the commit as text, which reads take as a position.
        instant: The instant of the commit, 17 digits UTC.
        inserted: How many rows are new.
        updated: How many rows replaced an older version.
        deleted: How many rows were deleted.
        exact: False where the counts are estimates.
        files: How many data files the commit has.
        bytes_written: The size of these files, in bytes.
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
"""A function, or the http:// or https:// address that gets the event as JSON, in a POST."""


@dataclass(frozen=True, eq=False)
class _Registered:
    """A hook, the table that it is for, None for all, and what it is told by."""

    hook: Hook
    path: str | None
    tell: Callable[[CommitEvent], object]


_lock = threading.Lock()
_registered: tuple[_Registered, ...] = ()
_telling = threading.local()


def on_commit(hook: Hook, path: str | os.PathLike[str] | None = None) -> Callable[[], None]:
    """Have `hook` told of each commit of rows that this process makes from now on.

    It is called in the thread that wrote, before the write returns. It is not told of commits that a hook makes, nor of
    those of table services and purges. `df.write` and `writeStream` of Spark commit in a process of Spark's, which has
    no hooks.

    Args:
        hook: A function that takes a CommitEvent; or a URL, to which the event is sent as JSON. A URL has 10 seconds to
            answer.
        path: The table that it is for, as its `path` says. None (default): every table.

    Returns:
        A function that takes the hook back.

    Raises:
        OptionError: `hook` is neither a function nor a URL, or `path` is no path.
    """
    global _registered
    if isinstance(hook, str) and _URL.match(hook):
        tell: Callable[[CommitEvent], object] = _Posted(hook)
    elif callable(hook):
        tell = hook
    else:
        raise OptionError(
            f"on_commit takes a function or an http:// or https:// address, got {printable(redact(str(hook)))}.",
            option="hook",
        )
    if path is not None and not isinstance(path, (str, os.PathLike)):
        raise OptionError(f"path takes the path of a table, got {printable(path)}.", option="path")
    one = _Registered(hook, None if path is None else _full(str(path)), tell)

    def take_back() -> None:
        global _registered
        with _lock:
            _registered = tuple(other for other in _registered if other is not one)

    with _lock:
        _registered = (*_registered, one)
    return take_back


def tell_hooks(path: str, done: Committed) -> None:
    """Tell the hooks of a commit to the table at `path`, if there was one. Raises nothing."""
    if not done.instant or not _registered or getattr(_telling, "now", False):
        return
    counts = (done.inserted, done.updated, done.deleted, done.exact, done.files, done.bytes_written)
    event = CommitEvent(path, str(done.cursor), done.instant, *counts)
    _telling.now = True
    try:
        for one in _registered:
            if one.path in (None, path):
                _tell(one, event)
    finally:
        _telling.now = False


def _tell(one: _Registered, event: CommitEvent) -> None:
    try:
        one.tell(event)
    except Exception as problem:  # whatever it is: the commit is final
        named = redact(one.hook) if isinstance(one.hook, str) else printable(one.hook)
        log.warning(
            "The hook %s failed after the commit %s of %s: %s: %s",
            named,
            event.instant,
            event.path,
            type(problem).__name__,
            redact(str(problem)),
        )


@dataclass(frozen=True)
class _Posted:
    """Sends events to a URL."""

    url: str

    def __call__(self, event: CommitEvent) -> None:
        import urllib.request  # dear, and few have a URL

        class Stays(urllib.request.HTTPRedirectHandler):
            """Follows no redirection: the request that comes of it would be a GET without the event."""

            def redirect_request(self, *_: object) -> None:
                return None

        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url, json.dumps(asdict(event)).encode(), headers, method="POST")
        with urllib.request.build_opener(Stays).open(request, timeout=_TIMEOUT_S):  # an answer that is an error raises
            pass


def _full(path: str) -> str:
    """The path of a table as the table says it."""
    return path.rstrip("/") if "://" in path else os.path.abspath(path)


__all__ = ["CommitEvent", "Hook", "on_commit", "tell_hooks"]
