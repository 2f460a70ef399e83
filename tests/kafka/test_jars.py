"""The broker of the tests is what the list names, or is not started."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kafka_jars import Jar, listed, wrong


def test_a_jar_that_is_missing_or_another_one_than_listed_is_named(tmp_path: Path) -> None:
    jars = [Jar("org", name, "1.0", hashlib.sha256(name.encode()).hexdigest()) for name in ("a", "b", "c")]
    (tmp_path / "a-1.0.jar").write_bytes(b"a")
    (tmp_path / "b-1.0.jar").write_bytes(b"changed")
    changed = hashlib.sha256(b"changed").hexdigest()
    assert wrong(jars, tmp_path) == [
        f"b-1.0.jar has sha256 {changed}, and kafka_jars.txt names {jars[1].sha256}",
        "c-1.0.jar is missing",
    ]


def test_every_jar_is_listed_once_with_its_digest() -> None:
    jars = listed()
    assert len({jar.file for jar in jars}) == len(jars) > 0
    assert all(len(jar.sha256) == 64 for jar in jars)
