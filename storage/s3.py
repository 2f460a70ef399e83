"""A bucket prefix as a Store: boto3 for conditional writes, Arrow's file system for bulk reads.

boto3's own retries would turn a lost reply into a 412 on our own write, so every request is sent once, and of a
conditional put an answer that is not a plain yes or no is *unknown* (StoreUnavailable); whoever calls resolves it by
looking. Requests that may be sent twice without harm are sent again here: boto3 gives up early on a store that fails
often, since it retries against a quota.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import ipaddress
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import boto3
import pyarrow as pa
import pyarrow.fs as pafs
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from hoodoo.errors import OptionError, StoreFull, StoreUnavailable
from hoodoo.storage.redact import redact
from hoodoo.storage.store import Store

T = TypeVar("T")
_OPTIONS = ("endpoint", "region", "access_key", "secret_key", "session_token", "allow_http")
_ABSENT = {"404", "NoSuchKey", "NotFound", "NoSuchBucket"}
_EXISTS = {"412", "PreconditionFailed"}
_DENIED = {"403", "AccessDenied"}
_ATTEMPTS = 8
_BEGINNING = 1 << 20  # bytes that opening an object reads at once
_STREAMED = 8 << 20  # bytes from which an upload is read piece by piece instead of copied
_PATIENCE_S = 30.0  # nothing is sent again after so long
_PASSING = {408, 409, 429}  # as every 5xx: the same request may succeed later


def _is_loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def check_endpoint(endpoint: str, allow_http: bool) -> str:
    """An endpoint comes from the caller only, is https unless on this machine, and carries no user part. Raises
    OptionError.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise OptionError(
            f"storage endpoint {redact(endpoint)!r} must be a plain http(s) URL without a user part.", option="endpoint"
        )
    if parts.scheme == "http" and not (allow_http or _is_loopback(parts.hostname)):
        raise OptionError("storage endpoint is plain http: use https, or pass allow_http=True.", option="endpoint")
    return endpoint


def _body(data: Any) -> Any:
    """What boto3 sends; it copies bytes, and reads a file."""
    return bytes(data) if len(data) < _STREAMED else pa.BufferReader(data)


class S3Store(Store):
    lists_by_prefix = True
    changes_unseen = True

    def __init__(self, uri: str, options: Mapping[str, Any] | None = None) -> None:
        self._options = dict(options or {})
        unknown = sorted(set(self._options) - set(_OPTIONS))
        if unknown:
            raise OptionError(
                f"Unknown storage option {unknown[0]!r}; known: {', '.join(_OPTIONS)}.", option=unknown[0]
            )
        if (endpoint := self._options.get("endpoint")) is not None:
            check_endpoint(endpoint, bool(self._options.get("allow_http")))
        self.bucket, _, prefix = uri.split("://", 1)[1].partition("/")
        self.prefix = prefix.strip("/")
        if not self.bucket:
            raise OptionError("An S3 table needs a bucket: s3://bucket/prefix.", option="path")
        self.uri = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        self._lock = threading.Lock()
        self._clients: dict[str, Any] = {}
        self._ahead_ms: int | None = None

    def __repr__(self) -> str:
        return f"S3Store({self.uri!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return S3Store, (self.uri, self._options)

    @property
    def identity(self) -> str:
        return f"{self._options.get('endpoint', '')} {self.uri}"

    def _client(self) -> Any:
        with self._lock:
            if "boto" not in self._clients:
                self._clients["boto"] = boto3.session.Session().client(
                    "s3",
                    endpoint_url=self._options.get("endpoint"),
                    region_name=self._options.get("region"),
                    aws_access_key_id=self._options.get("access_key"),
                    aws_secret_access_key=self._options.get("secret_key"),
                    aws_session_token=self._options.get("session_token"),
                    config=Config(
                        retries={"total_max_attempts": 1},
                        connect_timeout=10,
                        read_timeout=60,
                        s3={"addressing_style": "path"} if self._options.get("endpoint") else {},
                    ),
                )
            return self._clients["boto"]

    def _arrow(self) -> pafs.S3FileSystem:
        with self._lock:
            if "arrow" not in self._clients:
                endpoint = self._options.get("endpoint")
                named = {
                    "region": self._options.get("region"),
                    "access_key": self._options.get("access_key"),
                    "secret_key": self._options.get("secret_key"),
                    "session_token": self._options.get("session_token"),
                    "endpoint_override": endpoint,
                    "scheme": urlsplit(endpoint).scheme if endpoint else None,
                    "retry_strategy": pafs.AwsDefaultS3RetryStrategy(max_attempts=_ATTEMPTS),
                }
                self._clients["arrow"] = pafs.S3FileSystem(**{k: v for k, v in named.items() if v})
            return self._clients["arrow"]

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key

    def _again(self, call: Callable[[], T]) -> T:
        """The result of `call`, which may be tried again while the store does not answer it. Raises StoreUnavailable in
        the end.
        """
        ends = time.monotonic() + _PATIENCE_S
        for attempt in range(1, _ATTEMPTS):
            try:
                return call()
            except StoreUnavailable as problem:
                status = problem.details.get("status", 0)
                if (status and status < 500 and status not in _PASSING) or time.monotonic() > ends:
                    raise
                self.pause(0.01 * 2**attempt)
        return call()

    def _call(self, operation: str, key: str, **arguments: Any) -> Any:
        return self._again(lambda: self._send(operation, key, **arguments))

    def _send(self, operation: str, key: str, **arguments: Any) -> Any:
        """Send one request once."""
        try:
            answer = getattr(self._client(), operation)(Bucket=self.bucket, **arguments)
            self._note_clock(answer)
            return answer
        except ClientError as problem:
            code = str(problem.response.get("Error", {}).get("Code", ""))
            if code in _ABSENT:
                raise FileNotFoundError(key) from None
            if code in _EXISTS:
                raise FileExistsError(key) from None
            if code in _DENIED:
                raise StoreFull(f"The store refused {operation} of {key!r}: access denied.", key=key) from None
            status = problem.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            raise StoreUnavailable(
                f"The store answered {code or 'an error'} to {operation} of {key!r}.", key=key, status=status
            ) from None
        except BotoCoreError as problem:
            raise StoreUnavailable(
                f"{operation} of {key!r} failed: {redact(type(problem).__name__)}.", key=key
            ) from None

    def _note_clock(self, answer: Mapping[str, Any]) -> None:
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        with contextlib.suppress(TypeError, ValueError):
            self._ahead_ms = int(parsedate_to_datetime(date).timestamp() * 1000) - time.time_ns() // 1_000_000

    def clock_ms(self) -> int | None:
        """By the Date of the newest answer."""
        return None if self._ahead_ms is None else time.time_ns() // 1_000_000 + self._ahead_ms

    def put_if_absent(self, key: str, data: Any, durable: bool = True) -> str | None:
        answer = self._send("put_object", key, Key=self._key(key), Body=_body(data), IfNoneMatch="*")
        return str(answer["ETag"]) if "ETag" in answer else None

    def put(self, key: str, data: Any) -> None:
        self._call("put_object", key, Key=self._key(key), Body=bytes(data))

    def _read(self, key: str, **arguments: Any) -> tuple[bytes, Mapping[str, Any]]:
        """Bytes of `key` and the answer they came with."""

        def read() -> tuple[bytes, Mapping[str, Any]]:
            answer = self._send("get_object", key, Key=self._key(key), **arguments)
            try:
                return answer["Body"].read(), answer
            except (BotoCoreError, HTTPError) as problem:
                raise StoreUnavailable(f"Reading {key!r} broke off: {type(problem).__name__}.", key=key) from None

        return self._again(read)

    def get(self, key: str) -> bytes:
        return self._read(key)[0]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if length == 0:
            return b""
        return self._read(key, Range=f"bytes={start}-{start + length - 1}")[0]

    def size(self, key: str) -> int:
        return int(self._call("head_object", key, Key=self._key(key))["ContentLength"])

    def modified_ms(self, key: str) -> int | None:
        try:
            moment: dt.datetime = self._call("head_object", key, Key=self._key(key))["LastModified"]
        except FileNotFoundError:
            return None
        return int(moment.timestamp() * 1000)

    def list(self, prefix: str, after: str = "") -> Iterator[tuple[str, int]]:
        yield from ((key, int(item["Size"])) for key, item in self._items(prefix, after))

    def above(self) -> Iterator[Store]:
        parts = self.prefix.split("/") if self.prefix else []
        for count in range(len(parts) - 1, -1, -1):
            yield S3Store(f"s3://{self.bucket}/{'/'.join(parts[:count])}", self._options)

    def version(self, key: str) -> str:
        try:
            return str(self._call("head_object", key, Key=self._key(key))["ETag"])
        except FileNotFoundError:
            return ""

    def versions(self, prefix: str, after: str = "") -> Iterator[tuple[str, str]]:
        yield from ((key, str(item["ETag"])) for key, item in self._items(prefix, after))

    def _items(self, prefix: str, after: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        cut = len(self._key(""))
        arguments: dict[str, Any] = {"Prefix": self._key(prefix)} | ({"StartAfter": self._key(after)} if after else {})
        while True:
            page = self._call("list_objects_v2", prefix, **arguments)
            yield from ((item["Key"][cut:], item) for item in page.get("Contents", ()))
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def delete(self, key: str) -> None:
        self._call("delete_object", key, Key=self._key(key))

    def open_input(self, key: str) -> pa.NativeFile:
        return pa.PythonFile(_Reading(self, key), mode="r")

    def beginning(self, key: str) -> tuple[bytes, int]:
        """The first bytes of `key`, all of them if they are few, and its size: one request. Raises
        FileNotFoundError.
        """
        try:
            data, answer = self._read(key, Range=f"bytes=0-{_BEGINNING - 1}")
        except StoreUnavailable as problem:
            if problem.details.get("status") == 416:  # no byte of an empty object can be asked for
                return b"", 0
            raise
        return data, int(answer.get("ContentRange", "").rpartition("/")[2] or len(data))

    def large(self, key: str) -> pa.NativeFile:
        """`key` through Arrow's own client, which moves many bytes without holding up other threads."""
        return self.through_arrow(key, lambda: self._arrow().open_input_file(f"{self.bucket}/{self._key(key)}"))

    def through_arrow(self, key: str, call: Callable[[], T]) -> T:
        """The result of `call`, tried again: Arrow's client does not by itself after 429 or where a reply broke off."""

        def once() -> T:
            try:
                return call()
            except FileNotFoundError:
                raise FileNotFoundError(key) from None
            except OSError as problem:
                raise StoreUnavailable(f"Reading {key!r} failed: {redact(str(problem))[:200]}", key=key) from None

        return self._again(once)

    def url(self, key: str) -> str:
        return f"s3a://{self.bucket}/{self._key(key)}"


class _Reading(io.RawIOBase):
    """An object opened for Arrow. A small one is read whole by the request that opens it."""

    def __init__(self, store: S3Store, key: str) -> None:
        super().__init__()
        self._store, self._key, self._at = store, key, 0
        self._data, self._size = store.beginning(key)
        self._file: pa.NativeFile | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, size: int = -1) -> Any:
        """A buffer of up to `size` bytes."""
        start, end = self._at, self._size if size < 0 else min(self._size, self._at + size)
        self._at = max(start, end)
        if end <= len(self._data):
            return memoryview(self._data)[start:end]
        if self._file is None:
            self._file = self._store.large(self._key)
        file = self._file
        return self._store.through_arrow(self._key, lambda: file.read_at(end - start, start))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()
