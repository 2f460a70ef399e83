"""Store in an S3 bucket.

The retries of boto3 are disabled. After a lost response, a retried conditional put would return 412, although this
process created the object. A conditional put is therefore sent once. If it neither succeeds nor is rejected, its
outcome is *unknown* (StoreUnavailable), and the caller reads the key to find out. This module retries requests that are
safe to repeat. boto3 would give up early on a store that fails often, because a quota limits its retries.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import ipaddress
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import boto3
import botocore.session
import pyarrow as pa
import pyarrow.fs as pafs
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
)
from botocore.httpsession import URLLib3Session
from urllib3.exceptions import HTTPError

from hoodoo.errors import (
    BucketNotFound,
    HoodooError,
    KeyRefused,
    NoCredentials,
    OptionError,
    SignatureRefused,
    StoreDenied,
    StoreUnavailable,
)
from hoodoo.redact import printable, redact
from hoodoo.storage.store import BytesLike, Store

T = TypeVar("T")
_OPTIONS = ("endpoint", "region", "access_key", "secret_key", "session_token", "allow_http")
_ABSENT = {"404", "NoSuchKey", "NotFound"}
_EXISTS = {"412", "PreconditionFailed"}
_DENIED = {"403", "AccessDenied", "AllAccessDisabled", "AccountProblem", "Forbidden"}
_KEY_REFUSED = {"InvalidAccessKeyId", "InvalidToken", "ExpiredToken", "InvalidClientTokenId", "TokenRefreshRequired"}
_SIGNATURE_REFUSED = {"SignatureDoesNotMatch", "RequestTimeTooSkewed", "AuthorizationHeaderMalformed"}
_METADATA_DEFAULT_S, _METADATA_S = 1, 0.35  # botocore's default, and hoodoo's value
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}")
_WITHOUT_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    ProfileNotFound,
    SSOError,
)
_ATTEMPTS = 8
_CONNECTIONS = 32  # maximum open connections of a client, which several tables and threads may share
_BEGINNING = 1 << 20  # bytes read when an object is opened
_STREAMED = 8 << 20  # larger uploads are streamed instead of copied
_PATIENCE_S = 30.0  # maximum time for the retries of a request
_PASSING = {408, 409, 429}  # transient statuses, like all 5xx: the request may succeed later


def _is_loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def validate_endpoint(endpoint: str, allow_http: bool) -> str:
    """Validate the endpoint (address) of an S3 server.

    It must use https, except on this machine or with `allow_http`, and must not contain a user or a password.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise OptionError(
            f"Storage endpoint {redact(endpoint)!r} is not valid. Use an http(s) URL without a user or a password.",
            option="endpoint",
        )
    if parts.scheme == "http" and not (allow_http or _is_loopback(parts.hostname)):
        raise OptionError(
            "Storage endpoint uses http, which is not encrypted. Use https, or pass allow_http=True.", option="endpoint"
        )
    return endpoint


def _bucket_and_prefix(uri: str) -> tuple[str, str]:
    bucket, _, path = uri.partition("://")[2].partition("/")
    prefix = path.strip("/")
    if not _BUCKET.fullmatch(bucket):
        raise OptionError(f"S3 path {printable(uri)} has no valid bucket. Write s3://bucket/prefix.", option="path")
    if prefix and any(part in ("", ".", "..") for part in prefix.split("/")):
        raise OptionError(
            f"S3 path {printable(uri)} contains an empty segment, '.' or '..', which programs interpret differently. "
            "Write the path without them.",
            option="path",
        )
    return bucket, prefix


def _create_session() -> boto3.session.Session:
    # The cloud metadata service gets a shorter timeout unless one is configured, so that missing credentials are
    # reported within a second.
    session = botocore.session.get_session()
    if session.get_config_variable("metadata_service_timeout") == _METADATA_DEFAULT_S:
        for provider in session.get_component("credential_provider").providers:
            # boto3's option only accepts integer seconds
            if (fetcher := getattr(provider, "_role_fetcher", None)) is not None:
                fetcher._session = URLLib3Session(timeout=_METADATA_S)
    return boto3.session.Session(botocore_session=session)


def _request_body(data: BytesLike) -> Any:
    return bytes(data) if len(data) < _STREAMED else pa.BufferReader(data)


class _Clients:
    """S3 clients for one set of options."""

    def __init__(self) -> None:
        self.lock, self.pid = threading.Lock(), os.getpid()
        self.made: dict[str, Any] = {}


_shared: WeakValueDictionary[tuple[Any, ...], _Clients] = WeakValueDictionary()


def _clients_of(options: Mapping[str, Any]) -> _Clients:
    # Stores with equal options share their clients. Clients with credentials from the environment are not shared,
    # because these may change. A forked process gets its own clients.
    if not options.get("access_key"):
        return _Clients()
    return _shared.setdefault((os.getpid(), *sorted((name, str(value)) for name, value in options.items())), _Clients())


class S3Store(Store):
    """Store in an S3 bucket."""

    lists_by_prefix = True
    changes_unseen = True

    def __init__(self, uri: str, options: Mapping[str, Any] | None = None) -> None:
        self._options = dict(options or {})
        unknown = sorted(set(self._options) - set(_OPTIONS))
        if unknown:
            raise OptionError(
                f"Storage option {printable(unknown[0])} is unknown. Valid options: {', '.join(_OPTIONS)}.",
                option=unknown[0],
            )
        if (endpoint := self._options.get("endpoint")) is not None:
            validate_endpoint(endpoint, bool(self._options.get("allow_http")))
        for name in set(self._options) - {"allow_http"}:
            if self._options[name] is not None and not isinstance(self._options[name], str):
                raise OptionError(
                    f"Storage option {name} must be a string, got a {type(self._options[name]).__name__}.", option=name
                )
        self.bucket, self.prefix = _bucket_and_prefix(uri)
        self.uri = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        self._clients = _clients_of(self._options)
        self._ahead_ms: int | None = None

    def __repr__(self) -> str:
        return f"S3Store({self.uri!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return S3Store, (self.uri, self._options)

    @property
    def identity(self) -> str:
        return f"{self._options.get('endpoint', '')} {self.uri}"

    def _process_clients(self) -> _Clients:
        # Otherwise a forked process and its parent would use the same connections and read each other's responses.
        if self._clients.pid != os.getpid():
            self._clients = _clients_of(self._options)
        return self._clients

    def _client(self) -> Any:
        self._process_clients()
        with self._clients.lock:
            if "boto" not in self._clients.made:
                self._clients.made["boto"] = _create_session().client(
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
                        max_pool_connections=_CONNECTIONS,
                        s3={"addressing_style": "path"} if self._options.get("endpoint") else {},
                    ),
                )
            return self._clients.made["boto"]

    def _arrow(self) -> pafs.S3FileSystem:
        self._process_clients()
        with self._clients.lock:
            if "arrow" not in self._clients.made:
                endpoint = self._options.get("endpoint")
                arguments = {
                    "region": self._options.get("region"),
                    "access_key": self._options.get("access_key"),
                    "secret_key": self._options.get("secret_key"),
                    "session_token": self._options.get("session_token"),
                    "endpoint_override": endpoint,
                    "scheme": urlsplit(endpoint).scheme if endpoint else None,
                    "retry_strategy": pafs.AwsDefaultS3RetryStrategy(max_attempts=_ATTEMPTS),
                }
                self._clients.made["arrow"] = pafs.S3FileSystem(**{k: v for k, v in arguments.items() if v})
            return self._clients.made["arrow"]

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key

    def _retry_unavailable(self, call: Callable[[], T]) -> T:
        deadline = time.monotonic() + _PATIENCE_S
        for attempt in range(1, _ATTEMPTS):
            try:
                return call()
            except StoreUnavailable as problem:
                status = problem.details.get("status", 0)
                if (status and status < 500 and status not in _PASSING) or time.monotonic() > deadline:
                    raise
                self.pause(0.01 * 2**attempt)
        return call()

    def _call(self, operation: str, key: str, **arguments: Any) -> Any:
        return self._retry_unavailable(lambda: self._send(operation, key, **arguments))

    def _send(self, operation: str, key: str, **arguments: Any) -> Any:
        # boto3's errors are converted to hoodoo's.
        try:
            response = getattr(self._client(), operation)(Bucket=self.bucket, **arguments)
            self._note_clock(response)
            return response
        except ClientError as problem:
            code = str(problem.response.get("Error", {}).get("Code", ""))
            if code in _ABSENT:
                raise FileNotFoundError(key) from None
            if code in _EXISTS:
                raise FileExistsError(key) from None
            if code in _DENIED and operation == "head_object":  # a head response does not contain the reason
                self._send("list_objects_v2", key, Prefix=self._key(key), MaxKeys=1)
            if refusal := self._permanent_error(code, operation, key):
                raise refusal from None
            status = problem.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            raise StoreUnavailable(
                f"S3 request {operation} for {key!r} in bucket {self.bucket!r} at {self._endpoint} failed: "
                f"{code or 'unknown error'}. Try again later.",
                key=key,
                status=status,
                **self._named,
            ) from None
        except _WITHOUT_CREDENTIALS as problem:
            self._clients.made.pop("boto", None)  # the client would not look for credentials again
            raise NoCredentials(
                f"No credentials for bucket {self.bucket!r} ({type(problem).__name__}). Set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, set AWS_PROFILE to a profile, or pass "
                "storage={'access_key': ..., 'secret_key': ...}.",
                **self._named,
            ) from None
        except ParamValidationError as problem:
            raise OptionError(
                f"S3 does not accept the bucket {self.bucket!r} or the key {key!r}: {printable(redact(str(problem)))}. "
                "Choose another path.",
                option="path",
                **self._named,
            ) from None
        except BotoCoreError as problem:
            raise StoreUnavailable(
                f"S3 request {operation} for {key!r} in bucket {self.bucket!r} at {self._endpoint} failed: "
                f"{redact(type(problem).__name__)}. Check that the endpoint is correct and that the store is running.",
                key=key,
                **self._named,
            ) from None

    @property
    def _endpoint(self) -> str:
        return str(self._options.get("endpoint") or "AWS")

    @property
    def _named(self) -> dict[str, Any]:
        return {"bucket": self.bucket, "endpoint": self._endpoint}

    def _permanent_error(self, code: str, operation: str, key: str) -> HoodooError | None:
        bucket = f"bucket {self.bucket!r} at {self._endpoint}"
        if code == "NoSuchBucket":
            return BucketNotFound(
                f"Cannot find {bucket}. Create it, or correct the path or the endpoint.", **self._named
            )
        if code in _KEY_REFUSED:
            return KeyRefused(
                f"Access key or session token was rejected by {bucket} ({code}). Pass the access_key of this store, or "
                "renew the session token.",
                **self._named,
            )
        if code in _SIGNATURE_REFUSED:
            causes = (
                "this machine's clock" if code == "RequestTimeTooSkewed" else "the secret_key, the region or the clock"
            )
            return SignatureRefused(
                f"Request signature was rejected by {bucket} ({code}). Correct {causes}.", **self._named
            )
        if code in _DENIED:
            return StoreDenied(
                f"No permission for {operation} on {key!r} in {bucket}. Nothing was changed. Ask the owner of the "
                "bucket to grant it (examples/bucket-policy.json).",
                key=key,
                operation=operation,
                **self._named,
            )
        return None

    def _note_clock(self, response: Mapping[str, Any]) -> None:
        date = response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        with contextlib.suppress(TypeError, ValueError):
            self._ahead_ms = int(parsedate_to_datetime(date).timestamp() * 1000) - time.time_ns() // 1_000_000

    def clock_ms(self) -> int | None:
        return None if self._ahead_ms is None else time.time_ns() // 1_000_000 + self._ahead_ms

    def put_if_absent(self, key: str, data: BytesLike, durable: bool = True) -> str | None:
        response = self._send("put_object", key, Key=self._key(key), Body=_request_body(data), IfNoneMatch="*")
        return str(response["ETag"]) if "ETag" in response else None

    def put(self, key: str, data: BytesLike) -> None:
        self._call("put_object", key, Key=self._key(key), Body=bytes(data))

    def _read_object(self, key: str, **arguments: Any) -> tuple[bytes, Mapping[str, Any]]:
        def read() -> tuple[bytes, Mapping[str, Any]]:
            response = self._send("get_object", key, Key=self._key(key), **arguments)
            try:
                return response["Body"].read(), response
            except (BotoCoreError, HTTPError) as problem:
                raise StoreUnavailable(
                    f"Connection to S3 failed while reading {key!r}: {type(problem).__name__}. Try again.", key=key
                ) from None

        return self._retry_unavailable(read)

    def get(self, key: str) -> bytes:
        return self._read_object(key)[0]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if length == 0:
            return b""
        return self._read_object(key, Range=f"bytes={start}-{start + length - 1}")[0]

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

    def objects(self, prefix: str = "") -> Iterator[tuple[str, int, int, str]]:
        for key, item in self._items(prefix, ""):
            yield key, int(item["Size"]), int(item["LastModified"].timestamp() * 1000), str(item["ETag"])

    def above(self) -> Iterator[Store]:
        parts = self.prefix.split("/") if self.prefix else []
        for count in range(len(parts) - 1, -1, -1):
            yield self._store_in_bucket(f"s3://{self.bucket}/{'/'.join(parts[:count])}")

    def beside(self, suffix: str) -> S3Store | None:
        return self._store_in_bucket(self.uri + suffix) if self.prefix else None

    def _store_in_bucket(self, uri: str) -> S3Store:
        store = S3Store(uri, self._options)
        store._clients = self._clients
        return store

    def version(self, key: str) -> str:
        try:
            return str(self._call("head_object", key, Key=self._key(key))["ETag"])
        except FileNotFoundError:
            return ""

    def versions(self, prefix: str, after: str = "") -> Iterator[tuple[str, str]]:
        yield from ((key, str(item["ETag"])) for key, item in self._items(prefix, after))

    def folders(self) -> Sequence[str]:
        prefix = self._key("")
        pages = self._listing_pages("", Prefix=prefix, Delimiter="/")
        return sorted(one["Prefix"][len(prefix) : -1] for page in pages for one in page.get("CommonPrefixes", ()))

    def _items(self, prefix: str, after: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        cut = len(self._key(""))
        start = {"StartAfter": self._key(after)} if after else {}
        for page in self._listing_pages(prefix, Prefix=self._key(prefix), **start):
            yield from ((item["Key"][cut:], item) for item in page.get("Contents", ()))

    def _listing_pages(self, key: str, **arguments: Any) -> Iterator[Mapping[str, Any]]:
        while True:
            page = self._call("list_objects_v2", key, **arguments)
            yield page
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def delete(self, key: str) -> None:
        self._call("delete_object", key, Key=self._key(key))

    def open_input(self, key: str) -> pa.NativeFile:
        return pa.PythonFile(_S3File(self, key), mode="r")

    def read_beginning(self, key: str) -> tuple[bytes, int]:
        """Read the beginning of an object.

        This takes one request. Raises FileNotFoundError.
        """
        try:
            data, response = self._read_object(key, Range=f"bytes=0-{_BEGINNING - 1}")
        except StoreUnavailable as problem:
            if problem.details.get("status") == 416:  # a range request for an empty object fails
                return b"", 0
            raise
        return data, int(response.get("ContentRange", "").rpartition("/")[2] or len(data))

    def large(self, key: str) -> pa.NativeFile:
        """Open a large object with Arrow.

        Other threads keep running while Arrow's S3 client reads.
        """
        return self.retry_with_arrow(key, lambda: self._arrow().open_input_file(f"{self.bucket}/{self._key(key)}"))

    def retry_with_arrow(self, key: str, call: Callable[[], T]) -> T:
        """Retry a read with Arrow's S3 client.

        Arrow's client itself does not retry after a 429 or an interrupted response.
        """

        def once() -> T:
            try:
                return call()
            except FileNotFoundError:
                raise FileNotFoundError(key) from None
            except OSError as problem:
                raise StoreUnavailable(
                    f"Cannot read {key!r} from S3: {redact(str(problem))[:200]}. Try again.", key=key
                ) from None

        return self._retry_unavailable(once)

    def url(self, key: str) -> str:
        return f"s3a://{self.bucket}/{self._key(key)}"


class _S3File(io.RawIOBase):
    """File object for an S3 object."""

    def __init__(self, store: S3Store, key: str) -> None:
        super().__init__()
        self._store, self._key, self._at = store, key, 0
        self._data, self._size = store.read_beginning(key)
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
        start, end = self._at, self._size if size < 0 else min(self._size, self._at + size)
        self._at = max(start, end)
        if end <= len(self._data):
            return memoryview(self._data)[start:end]
        if self._file is None:
            self._file = self._store.large(self._key)
        file = self._file
        return self._store.retry_with_arrow(self._key, lambda: file.read_at(end - start, start))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()
