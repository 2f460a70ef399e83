"""What a schema registry answers, and what becomes of each answer that is no schema."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from registry_server import RegistryServer

from hoodoo.errors import DataError, OptionError, SourceUnavailable
from hoodoo.sources import SchemaRegistry

POINT = {"type": "record", "name": "geo.Point", "fields": [{"name": "x", "type": "int"}]}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


def test_a_schema_is_asked_for_once(server: RegistryServer) -> None:
    number, registry = server.put(POINT), SchemaRegistry(server.url + "/")
    assert [json.loads(text) for text in registry.schema(number)] == [POINT]
    assert registry.schema(number) and server.asked == [f"/schemas/ids/{number}"]


def test_a_schema_comes_behind_those_that_it_refers_to(server: RegistryServer) -> None:
    base = server.put('"int"')
    server.subjects["base", 1] = base
    middle = server.put(POINT, references=[{"name": "Base", "subject": "base", "version": 1}])
    server.subjects["a/b c", 7] = middle
    server.instead = lambda path: None if "a%2Fb%20c" not in path else server._said(server.by_id[middle], 0)
    refers = [{"name": "geo.Point", "subject": "a/b c", "version": 7}, {"name": "B", "subject": "base", "version": 1}]
    top = server.put('"geo.Point"', references=refers)
    assert SchemaRegistry(server.url).schema(top) == ['"int"', json.dumps(POINT), '"geo.Point"']


def test_a_schema_that_refers_to_itself_ends(server: RegistryServer) -> None:
    number = server.put(POINT, references=[{"name": "geo.Point", "subject": "round", "version": 1}])
    server.subjects["round", 1] = number
    assert SchemaRegistry(server.url).schema(number) == [json.dumps(POINT)] * 2


def test_a_number_that_the_registry_does_not_have_is_about_the_message(server: RegistryServer) -> None:
    with pytest.raises(DataError, match="does not have schema 77"):
        SchemaRegistry(server.url).schema(77)
    lost = server.put(POINT, references=[{"name": "x", "subject": "gone", "version": 1}])
    with pytest.raises(DataError, match="does not have a reference of schema"):
        SchemaRegistry(server.url).schema(lost)


def test_a_schema_of_another_kind_is_about_the_message(server: RegistryServer) -> None:
    number = server.put('syntax = "proto3";', schemaType="PROTOBUF")
    with pytest.raises(DataError, match="with type 'PROTOBUF': expected AVRO"):
        SchemaRegistry(server.url).schema(number)


@pytest.mark.parametrize("status", [500, 502, 503, 429, 408])
def test_an_answer_that_passes_is_waited_out(server: RegistryServer, status: int) -> None:
    number, registry = server.put(POINT), SchemaRegistry(server.url)
    server.instead = lambda path: (status, b"busy", {})
    with pytest.raises(SourceUnavailable, match=f"it returned HTTP status {status}"):
        registry.schema(number)
    server.instead = lambda path: None
    assert len(registry.schema(number)) == 1


def test_a_registry_that_is_not_there_is_waited_for() -> None:
    with pytest.raises(SourceUnavailable, match="did not respond"):
        SchemaRegistry("http://127.0.0.1:1").schema(1)


def test_an_answer_that_is_cut_short_is_asked_for_again(server: RegistryServer) -> None:
    number, registry = server.put(POINT), SchemaRegistry(server.url, timeout_seconds=5)
    server.instead = lambda path: (200, b'{"schema": ', {"Content-Length": "500"})
    with pytest.raises(SourceUnavailable):
        registry.schema(number)


@pytest.mark.parametrize("status", [401, 403])
def test_who_is_refused_is_told_so_at_once(server: RegistryServer, status: int) -> None:
    server.instead = lambda path: (status, b"secret", {})
    with pytest.raises(OptionError, match=rf"requires a login \({status}\).*HOODOO_REGISTRY_AUTH") as refused:
        SchemaRegistry(server.url, "ann", "hush").schema(1)
    assert "hush" not in str(refused.value) and "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("status", "content", "why"),
    [
        (302, b"", "The server redirects to '\\*\\*\\*@elsewhere/'"),
        (404, b"<html>", "The server returned HTTP status 404"),
        (404, b'{"error_code": 404}', "The server returned HTTP status 404"),
        (405, b"", "The server returned HTTP status 405"),
        (200, b"<html>", "is not a JSON object"),
        (200, b"[" * 100_000, "is not a JSON object"),
        (200, b"[]", "is not a JSON object"),
        (200, b"{}", "does not contain a schema"),
        (200, b'{"schema": {"type": "int"}}', "does not contain a schema"),
        (200, b'{"schema": "x", "references": [{"subject": "a"}]}', "does not contain a subject or version"),
        (200, b" " * (5 << 20), "larger than 4 MiB"),
    ],
    ids=range(11),
)
def test_what_is_no_registry_is_named_at_once(server: RegistryServer, status: int, content: bytes, why: str) -> None:
    server.instead = lambda path: (status, content, {"Location": "http://u:hush@elsewhere/"})
    with pytest.raises(OptionError, match=f"{why}.*, so .* is not the address of a schema registry") as refused:
        SchemaRegistry(server.url).schema(1)
    assert "hush" not in str(refused.value)


def test_a_redirect_is_not_followed(server: RegistryServer) -> None:
    with RegistryServer() as other:
        number = other.put(POINT)
        server.instead = lambda path: (302, b"", {"Location": f"{other.url}/schemas/ids/{number}"})
        with pytest.raises(OptionError):
            SchemaRegistry(server.url, "ann", "hush").schema(number)
        assert other.asked == []


@pytest.mark.parametrize("given", ["in the address", "as arguments"])
def test_a_password_is_told_to_the_registry_and_to_nobody_else(server: RegistryServer, given: str) -> None:
    url = f"http://ann:h%2Fush@{server.address}"
    registry = SchemaRegistry(url) if given == "in the address" else SchemaRegistry(server.url, "ann", "h/ush")
    with pytest.raises(DataError) as missing:
        registry.schema(3)
    assert server.headers["Authorization"] == "Basic " + base64.b64encode(b"ann:h/ush").decode()
    for text in (repr(registry), str(missing.value), registry.url, str(missing.value.details)):
        assert "ush" not in text and "ann" not in text


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"url": "registry:8081"}, "registry"),
        ({"url": "ftp://registry"}, "registry"),
        ({"url": "http://"}, "registry"),
        ({"url": "http://r:99999"}, "registry"),
        ({"url": "http://r/?a=1"}, "registry"),
        ({"url": "http://ann:hush@r /"}, "registry"),
        ({"url": None}, "registry"),
        ({"url": b"http://r"}, "registry"),
        ({"password": "hush"}, "user"),
        ({"user": "a:b", "password": "hush"}, "user"),
        ({"user": "a", "password": 5}, "password"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
    ],
)
def test_a_wrong_argument_is_named_and_no_password_is_shown(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError) as refused:
        SchemaRegistry(**{"url": "http://r", **wrong})
    assert refused.value.details["option"] == named and "hush" not in str(refused.value)
