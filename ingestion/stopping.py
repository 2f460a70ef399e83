"""Stopping of ingestion jobs by signals.

They stop after the current batch or immediately. A process may be killed at any time: the current batch is then either
committed or has no effect.
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
"""Exit code of a process whose current batch did not finish in time."""
_NUMBERS = (signal.SIGTERM, signal.SIGINT)
_MAIN_THREAD_S = 1.0  # time for the main thread to end the process after the second signal


@contextmanager
def stop_on_signals(stopped: threading.Event) -> Iterator[None]:
    """Stop at the first SIGTERM or SIGINT.

    The event `stopped` is set. The second signal calls the previous handler. Outside the main thread, signals are not
    handled.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {}

    def handle(number: int, frame: object) -> None:
        if stopped.is_set():
            signal.signal(number, before[number])
            signal.raise_signal(number)
        stopped.set()

    for signal_number in _NUMBERS:
        before[signal_number] = signal.signal(signal_number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def end_process_within(seconds: float, end: Callable[[int], None] | None = None) -> Iterator[None]:
    """End this process some seconds after a signal.

    The signals are SIGTERM and SIGINT. Python runs a signal handler only if the main thread runs Python code, which a
    library that hangs never does. Another thread therefore waits for the signal. `seconds` is the time that the current
    batch has to finish. `end` ends the process with an exit code. None: `os._exit`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    listening, sending = socket.socketpair()
    sending.setblocking(False)
    before = signal.set_wakeup_fd(sending.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=_wait_for_signals, args=(listening, seconds, end or _ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        sending.close()
        thread.join()
        listening.close()


def _wait_for_signals(listening: socket.socket, seconds: float, end: Callable[[int], None]) -> None:
    # `end` is called when time is up or a second signal arrives.
    deadline: float | None = None
    while True:
        try:
            if deadline is not None:
                listening.settimeout(max(1e-3, deadline - time.monotonic()))
            number = listening.recv(1)
        except TimeoutError:
            end(GAVE_UP)
            return
        if not number:
            return
        if number[0] not in _NUMBERS:
            continue
        if deadline is not None:
            listening.settimeout(_MAIN_THREAD_S)
            try:
                while listening.recv(1):
                    pass
            except TimeoutError:
                end(128 + number[0])
            return
        deadline = time.monotonic() + seconds


def _ended(code: int) -> None:
    if code == GAVE_UP:
        print(
            "GAVE_UP: the current batch did not finish in time, and no part of it was written to the table.",
            file=sys.stderr,
        )
    sys.stderr.flush()
    os._exit(code)


__all__ = ["GAVE_UP", "end_process_within", "stop_on_signals"]
