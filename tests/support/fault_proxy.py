"""A proxy on loopback that breaks what passes through to an S3 server: requests lost before they were applied, replies
lost after, and worse.

It reads HTTP just far enough to know where a request and its reply end. Every choice comes from a seed; the counters
say what was done.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_LIMIT = 1 << 16


@dataclass(frozen=True)
class Rates:
    """Shares of requests. Each meets one fault at most; latency comes on top.

    reset: the connection ends before the request reaches the server. dropped: the server applies it, the reply is lost.
    truncated: of replies with a body (reads), which end in the middle. latency_s_max: of a distribution with a long
    tail; half of all requests wait almost not at all.
    """

    dropped: float = 0.10
    reset: float = 0.15
    unavailable: float = 0.10  # 503
    slow_down: float = 0.05  # 429
    truncated: float = 0.05
    latency_s_max: float = 3.0


@dataclass
class _Message:
    """A request or a reply: its first line, headers by lower-case name, and all its bytes."""

    first: str
    headers: dict[str, str]
    head: bytes
    body: bytes = b""


_QUIET_TURNS = 3  # of the loop: a connection is accepted in one, gets its streams in the next, and then its task


@dataclass
class FaultProxy:
    """Listens on `port` once started, and forwards to `upstream` on loopback. Runs in a thread of its own.

    on_put: called with the first line of each PUT that is on its way: sent to the server, not yet answered.
    """

    upstream: int
    seed: int = 0
    rates: Rates = Rates()
    counts: Counter[str] = field(default_factory=Counter)
    port: int = 0
    on_put: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._serving: set[asyncio.Task[None]] = set()  # asyncio itself forgets a task once its client is gone

    def start(self) -> None:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_LIMIT), self._loop
        ).result()
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        """End all connections, those among them that were accepted and have no task yet: one left pending is reported
        by whatever test is running when it is collected.
        """
        self._server.close()
        quiet = 0
        while quiet < _QUIET_TURNS:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await asyncio.sleep(0)
            quiet = 0 if others else quiet + 1

    # ---- one client connection
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._exchange(reader, writer):
                pass
        writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its reply, or what becomes of it; False where the connection has ended."""
        request = await self._read_request(reader, writer)
        if request is None:
            return False
        self.counts["requests"] += 1
        fault = self._choose()
        await asyncio.sleep(self._latency())
        if fault == "reset":
            return self._broken(writer, fault)
        if fault in ("unavailable", "slow_down"):
            self.counts[fault] += 1
            writer.write(_refusal(fault))
            await writer.drain()
            return True
        reply = await self._forward(request)
        if fault == "dropped":
            return self._broken(writer, fault)
        if fault == "truncated" and len(reply.body) > 1:
            writer.write(reply.head + reply.body[: self._rng.randrange(1, len(reply.body))])
            await writer.drain()
            self.counts[fault] += 1
            return False
        writer.write(reply.head + reply.body)
        await writer.drain()
        self.counts["passed"] += 1
        return True

    def _choose(self) -> str:
        chance = self._rng.random()
        for fault in ("dropped", "reset", "unavailable", "slow_down", "truncated"):
            chance -= getattr(self.rates, fault)
            if chance < 0:
                return fault
        return ""

    def _latency(self) -> float:
        """0 to the maximum: nine of ten wait for no time to speak of, one of a hundred longer than a third of it."""
        delay = self.rates.latency_s_max * self._rng.random() ** 120
        self.counts["delayed by more than 1 s"] += delay > 1
        return delay

    def _broken(self, writer: asyncio.StreamWriter, fault: str) -> bool:
        """End the connection with RST, as a machine that is gone does."""
        self.counts[fault] += 1
        peer: socket.socket = writer.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        return False

    # ---- HTTP
    async def _read_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Message | None:
        request = await _read_head(reader)
        if request is None:
            return None
        if request.headers.pop("expect", ""):  # answered here, where the body is read
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.head = b"\r\n".join(
                line for line in request.head.split(b"\r\n") if not line.lower().startswith(b"expect:")
            )
        request.body = await _read_body(reader, request)
        return request

    async def _forward(self, request: _Message) -> _Message:
        """The server's reply. Its own connection each time: what broke on one must not reach another."""
        upstream, out = await asyncio.open_connection("127.0.0.1", self.upstream, limit=_LIMIT)
        try:
            out.write(request.head + request.body)
            await out.drain()
            if self.on_put and request.first.startswith("PUT "):
                self.on_put(request.first)
            reply = await _read_head(upstream)
            if reply is None:
                raise ConnectionError("the server said nothing")
            if not request.first.startswith("HEAD ") and reply.first.split(" ")[1] not in ("204", "304"):
                reply.body = await _read_body(upstream, reply)
            return reply
        finally:
            out.close()


async def _read_head(reader: asyncio.StreamReader) -> _Message | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    return _Message(
        first,
        {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)},
        head,
    )


async def _read_body(reader: asyncio.StreamReader, message: _Message) -> bytes:
    if message.headers.get("transfer-encoding", "").lower() == "chunked":
        parts = []
        while True:
            size = await reader.readuntil(b"\r\n")
            data = await reader.readexactly(int(size.split(b";")[0], 16) + 2)
            parts += [size, data]
            if data == b"\r\n":
                return b"".join(parts)
    return await reader.readexactly(int(message.headers.get("content-length", "0")))


def _refusal(fault: str) -> bytes:
    status, code = (
        ("503 Service Unavailable", "ServiceUnavailable")
        if fault == "unavailable"
        else ("429 Too Many Requests", "TooManyRequests")
    )
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>planted</Message></Error>".encode()
    return f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@contextlib.contextmanager
def proxy(upstream: int, seed: int = 0, rates: Rates | None = None) -> Iterator[FaultProxy]:
    running = FaultProxy(upstream, seed, rates or Rates())
    running.start()
    try:
        yield running
    finally:
        running.stop()
