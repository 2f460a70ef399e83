"""How signals stop jobs: the first one lets the batch in hand end, the second one does not.

A process that dies between two commits, or within one, leaves nothing to see of the batch in hand. So to end it is safe
at any moment.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

GAVE_UP = 6
"""The exit code of a process whose batch in hand did not end in time."""
_NUMBERS = (signal.SIGTERM, signal.SIGINT)
_MAIN_THREAD_S = 1.0  # for which the main thread may end the process itself, by the second signal


@contextmanager
def signals_stop(stopped: threading.Event) -> Iterator[None]:
    """Set `stopped` at the first SIGTERM or SIGINT; the second one does what it did before. Other threads than the main
    one cannot listen to signals, and do not.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {}

    def told(number: int, frame: object) -> None:
        if stopped.is_set():
            signal.signal(number, before[number])
            signal.raise_signal(number)
        stopped.set()

    for each in _NUMBERS:
        before[each] = signal.signal(each, told)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ended_within(seconds: float, end: Callable[[int], None] | None = None) -> Iterator[None]:
    """End this process some time after the first SIGTERM or SIGINT, and by the second one, whatever it does then.

    Python's own handlers wait until the main thread runs Python again, which a library that hangs never does. So a
    thread listens, to what the handlers of the C library write.

    Args:
        seconds: For how long the batch in hand may go on.
        end: What ends the process with an exit code. None: it ends without anything more.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    listening, told = socket.socketpair()
    told.setblocking(False)
    before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=_listen, args=(listening, seconds, end or _ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        told.close()
        thread.join()
        listening.close()


def _listen(listening: socket.socket, seconds: float, end: Callable[[int], None]) -> None:
    """Wait for signals until the other side is closed."""
    until: float | None = None
    while True:
        try:
            if until is not None:
                listening.settimeout(max(1e-3, until - time.monotonic()))
            number = listening.recv(1)
        except TimeoutError:
            end(GAVE_UP)
            return
        if not number:
            return
        if number[0] not in _NUMBERS:
            continue
        if until is not None:
            listening.settimeout(_MAIN_THREAD_S)
            try:
                while listening.recv(1):
                    pass
            except TimeoutError:
                end(128 + number[0])
            return
        until = time.monotonic() + seconds


def _ended(code: int) -> None:
    if code == GAVE_UP:
        print("GAVE_UP: the batch in hand did not end in time, and nothing of it is in the table.", file=sys.stderr)
    sys.stderr.flush()
    os._exit(code)


__all__ = ["GAVE_UP", "ended_within", "signals_stop"]
