"""A schema registry for tests, on loopback and in this process: it speaks as Confluent's does, or as badly as asked."""

from __future__ import annotations

import json
import re
import struct
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any, Self

import fastavro

from hoodoo.errors import DataError
from hoodoo.sources import SchemaRegistry

Answer = tuple[int, bytes, dict[str, str]]


class RegistryServer:
    """Answers for schemas that were put into it.

    Attributes:
        asked: The paths that were asked for, in order.
        headers: The headers of the last request.
        instead: What it answers instead, where this is set: status, bytes and headers.
    """

    def __init__(self) -> None:
        self.by_id = dict[int, dict[str, Any]]()
        self.subjects = dict[tuple[str, int], int]()
        self.asked, self.headers = list[str](), dict[str, str]()
        self.instead: Callable[[str], Answer | None] = lambda path: None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.address = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.address}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def put(self, schema: Any, **more: Any) -> int:
        """Register a schema: its number."""
        number = 1_000 + len(self.by_id)  # a number of two bytes: their order counts
        self.by_id[number] = {"schema": schema if isinstance(schema, str) else json.dumps(schema), **more}
        return number

    def _answer(self, path: str) -> Answer:
        if found := re.fullmatch(r"/schemas/ids/(\d+)", path):
            return self._said(self.by_id.get(int(found[1])), 40403)
        if found := re.fullmatch(r"/subjects/([^/]+)/versions/(\d+)", path):
            return self._said(self.by_id.get(self.subjects.get((found[1], int(found[2])), 0)), 40401)
        return 404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}', {}

    def _said(self, found: Any, code: int) -> Answer:
        if found is None:
            return 404, json.dumps({"error_code": code, "message": "not found"}).encode(), {}
        return 200, json.dumps(found).encode(), {}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                registry.asked.append(self.path)
                registry.headers = dict(self.headers)
                status, content, headers = registry.instead(self.path) or registry._answer(self.path)
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(content))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

        return Handler


class KnownSchemas(SchemaRegistry):
    """Knows schemas without a server; a number is the place in `texts`."""

    def __init__(self, *schemas: Any) -> None:
        super().__init__("http://registry")
        self.texts = [schema if isinstance(schema, str) else json.dumps(schema) for schema in schemas]

    def schema(self, number: int) -> list[str]:
        if number >= len(self.texts):
            raise DataError("There is no such schema.")
        return [self.texts[number]]


def wire(number: int, schema: Any, value: Any) -> bytes:
    """A value as a message: 0, the number of its schema, its bytes."""
    sink = BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, number) + sink.getvalue()


__all__ = ["Answer", "KnownSchemas", "RegistryServer", "wire"]
