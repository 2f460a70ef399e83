"""Client for a schema registry.

It returns the Avro schema for a schema id. It uses the HTTP API of Confluent's registry, which Karapace and Apicurio
(`/apis/ccompat/v7`) also support. The schema of an id never changes, so each schema is requested once.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from hoodoo.arguments import check_number
from hoodoo.errors import DataError, OptionError, SourceUnavailable
from hoodoo.redact import printable, redact

_RESPONSE_BYTES_MAX = 4 << 20
_KEPT_MAX = 1_000
_REFERENCES_MAX = 64
_MISSING_CODES = (40401, 40402, 40403)
# Error codes for a missing subject, version or schema. A 404 with another code comes from another kind of server.
_TRANSIENT_STATUSES = (408, 425, 429)


class SchemaRegistry:
    """Cached client for a schema registry.

    Attributes:
        url: The address, without secrets.
    """

    def __init__(
        self, url: str, user: str | None = None, password: str | None = None, timeout_seconds: float = 10.0
    ) -> None:
        """Create a client for a schema registry.

        Nothing is requested yet.

        Args:
            url: The address, such as "https://registry:8081". It may contain a user and a password.
            user: The user, if the registry requires a login. Default: no login.
            password: The password. It is never shown, logged or stored.
            timeout_seconds: The maximum time of one response, in seconds. Default 10.

        Raises:
            OptionError: An argument is invalid.
        """
        try:
            parts = urlsplit(url)
            is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
            is_valid = is_valid and not parts.query and not parts.fragment and url.isascii() and url.isprintable()
        except (ValueError, TypeError, AttributeError):
            is_valid = False
        if not is_valid or " " in url:
            raise OptionError(
                "Address of the schema registry is invalid: expected a URL such as 'https://registry:8081', got "
                f"{printable(_hide_credentials(url))}.",
                option="registry",
            )
        if parts.username is not None and user is None and password is None:
            user, password = unquote(parts.username), unquote(parts.password or "")
        for option, value in (("user", user), ("password", password)):
            if value is not None and not isinstance(value, str):
                raise OptionError(
                    f"Option {option} is invalid: expected a string, got {type(value).__name__}.", option=option
                )
        if user is None and password is not None or user is not None and ":" in user:
            raise OptionError(
                "User is missing or contains a colon. Pass a user without a colon in the name together with the "
                "password.",
                option="user",
            )
        host = parts.netloc.rpartition("@")[2]
        self.url = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
        self.timeout_seconds = check_number("timeout_seconds", timeout_seconds, 0, optional=False)
        if not timeout_seconds:
            raise OptionError(
                "Option timeout_seconds is invalid: expected a number above 0, got 0.", option="timeout_seconds"
            )
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if user is not None:
            token = base64.b64encode(f"{user}:{password or ''}".encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._cached_schemas = dict[int, list[str]]()

    def __repr__(self) -> str:
        return f"<schema registry at {self.url}>"

    def schema(self, number: int) -> list[str]:
        """Return the Avro schema with an id.

        Args:
            number: The schema id.

        Returns:
            The schemas as JSON strings: the referenced schemas, each before the schemas that refer to it, and last the
            schema itself.

        Raises:
            DataError: The registry has no schema with this id, or it is not an Avro schema.
            SourceUnavailable: The registry does not respond. It may respond later.
            OptionError: The registry denies access, or the address is not a schema registry.
        """
        if number not in self._cached_schemas:
            schemas = self._collect_schemas(
                self._request_json(f"schemas/ids/{number}", f"schema {number}"), f"schema {number}"
            )
            while len(self._cached_schemas) >= _KEPT_MAX:
                self._cached_schemas.pop(next(iter(self._cached_schemas)))
            self._cached_schemas[number] = schemas
        return self._cached_schemas[number]

    def _collect_schemas(self, answer: Mapping[str, Any], what: str) -> list[str]:
        # Referenced schemas come first.
        schemas, visited = list[str](), set[tuple[str, int]]()

        def take(body: Mapping[str, Any]) -> None:
            if (kind := body.get("schemaType") or "AVRO") != "AVRO":
                raise DataError(
                    f"The schema registry at {self.url} returned {what} with type {printable(kind)}: expected AVRO. "
                    "Use a topic with Avro schemas.",
                    schema=what,
                )
            if not isinstance(text := body.get("schema"), str):
                raise self._not_registry_error(f"The response for {what} does not contain a schema")
            for name, version in self._references(body, what):
                if (name, version) in visited:
                    continue
                visited.add((name, version))
                if len(visited) > _REFERENCES_MAX:
                    raise DataError(
                        f"In the schema registry at {self.url}, {what} refers to more than {_REFERENCES_MAX} schemas. "
                        "Use a schema with fewer references.",
                        schema=what,
                    )
                take(
                    self._request_json(f"subjects/{quote(name, safe='')}/versions/{version}", f"a reference of {what}")
                )
            schemas.append(text)

        take(answer)
        return schemas

    def _references(self, response: Mapping[str, Any], what: str) -> list[tuple[str, int]]:
        try:
            references = [(one["subject"], one["version"]) for one in response.get("references") or ()]
            is_valid = all(isinstance(name, str) and type(version) is int for name, version in references)
        except (KeyError, TypeError):
            is_valid = False
        if not is_valid:
            raise self._not_registry_error(f"A schema reference of {what} does not contain a subject or version")
        return references

    # ---- HTTP
    def _request_json(self, path: str, what: str) -> Mapping[str, Any]:
        # Raises the same errors as `schema`.
        request = urllib.request.Request(f"{self.url}/{path}", headers=self._headers)
        try:
            with self._opener.open(request, timeout=self.timeout_seconds) as response:
                content = self._read_body(response)
        except urllib.error.HTTPError as problem:
            with problem:
                raise self._convert_http_error(problem, what) from None
        except (OSError, http.client.HTTPException) as problem:
            reason = problem.reason if isinstance(problem, urllib.error.URLError) else problem
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise OptionError(
                    f"The certificate of the schema registry at {self.url} is not trusted: {reason.verify_message}. "
                    "Set SSL_CERT_FILE in the environment to the file with the trusted certificates.",
                    option="registry",
                ) from None
            raise self._no_response_error(redact(str(reason)) or type(reason).__name__) from None
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise self._not_registry_error(f"The response for {what} is not a JSON object")
        return body

    def _read_body(self, response: Any) -> bytes:
        # Raises an error if the body is too large or takes too long.
        chunks, size, end = list[bytes](), 0, time.monotonic() + self.timeout_seconds
        while chunk := response.read1(1 << 16):
            chunks.append(chunk)
            size += len(chunk)
            if size > _RESPONSE_BYTES_MAX:
                raise self._not_registry_error(f"A response is larger than {_RESPONSE_BYTES_MAX >> 20} MiB")
            if time.monotonic() > end:
                raise TimeoutError(f"The response took more than {self.timeout_seconds:g} s")
        if response.length:
            raise http.client.IncompleteRead(b"")
        return b"".join(chunks)

    def _convert_http_error(
        self, problem: urllib.error.HTTPError, what: str
    ) -> DataError | OptionError | SourceUnavailable:
        if problem.code >= 500 or problem.code in _TRANSIENT_STATUSES:
            return self._no_response_error(f"it returned HTTP status {problem.code}")
        if problem.code in (401, 403):
            return OptionError(
                f"The schema registry at {self.url} requires a login ({problem.code}). Pass user= and "
                "password= (HOODOO_REGISTRY_AUTH=user:password on the command line).",
                option="registry",
            )
        if problem.code == 404 and self._error_code(problem) in _MISSING_CODES:
            return DataError(
                f"The schema registry at {self.url} does not have {what}. Pass the address of "
                "the registry that the producer uses.",
                schema=what,
            )
        if 300 <= problem.code < 400:
            to = printable(_hide_credentials(problem.headers.get("Location") or ""))
            return self._not_registry_error(f"The server redirects to {to}")
        return self._not_registry_error(f"The server returned HTTP status {problem.code}")

    def _error_code(self, problem: urllib.error.HTTPError) -> object:
        try:
            return json.loads(problem.read(1 << 16))["error_code"]
        except (ValueError, KeyError, TypeError, OSError, RecursionError, http.client.HTTPException):
            return None

    def _no_response_error(self, why: str) -> SourceUnavailable:
        return SourceUnavailable(
            f"The schema registry at {self.url} did not respond: {why}. Try again later.", registry=self.url
        )

    def _not_registry_error(self, why: str) -> OptionError:
        return OptionError(
            f"{why}, so {self.url} is not the address of a schema registry. Pass the part of the URL before "
            "/schemas/ids/1.",
            option="registry",
        )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    # Redirects are rejected, because another server would receive the password.
    def redirect_request(self, *args: Any, **named: Any) -> None:
        """Prevent urllib from following the redirect."""


def _hide_credentials(url: object) -> object:
    # The address may be invalid.
    return f"***@{url.rpartition('@')[2]}" if isinstance(url, str) and "@" in url else url


__all__ = ["SchemaRegistry"]
