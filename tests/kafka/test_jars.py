"""The servers of tests and examples are what their lists name, or are not started."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from kafka_jars import KAFKA
from listed_jars import JarList

EXAMPLE = Path(__file__).parents[2] / "examples" / "postgres_to_lake"
DEBEZIUM = JarList("Debezium", EXAMPLE / "debezium_jars.txt", EXAMPLE, ())


def test_a_jar_that_is_missing_or_another_one_than_listed_is_named(tmp_path: Path) -> None:
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("a", "b", "c")}
    names = tmp_path / "jars.txt"
    names.write_text("# a list\n" + "".join(f"org:{name}:1.0 {digest}\n" for name, digest in digests.items()))
    (tmp_path / "a-1.0.jar").write_bytes(b"a")
    (tmp_path / "b-1.0.jar").write_bytes(b"changed")
    changed = hashlib.sha256(b"changed").hexdigest()
    assert JarList("some", names, tmp_path, ()).wrong() == [
        f"b-1.0.jar has sha256 {changed}, and jars.txt names {digests['b']}",
        "c-1.0.jar is missing",
    ]


@pytest.mark.parametrize("jars", [KAFKA, DEBEZIUM], ids=lambda jars: jars.of)
def test_every_jar_is_listed_once_with_its_digest(jars: JarList) -> None:
    found = jars.jars()
    assert len({jar.file for jar in found}) == len(found) > 0
    assert all(len(jar.sha256) == 64 for jar in found)
