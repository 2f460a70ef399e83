"""The example that runs PostgreSQL, Debezium and Kafka ends with the rows of the database, or says what it lacks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiers import sized

import hoodoo

ROOT = Path(__file__).parents[2]
PIPELINE = ROOT / "examples" / "postgres_to_lake" / "pipeline.py"
NO_POSTGRES = "PostgreSQL was not found"
NO_JAVA = "No Java was found"


def run(*arguments: object, **environment: object) -> subprocess.CompletedProcess[str]:
    said = {name: str(value) for name, value in environment.items()}
    command = [sys.executable, str(PIPELINE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **said})


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder that other users can go through, as they cannot through those of pytest."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("lacking", [NO_POSTGRES, NO_JAVA])
def test_without_postgres_or_java_the_pipeline_starts_nothing_and_says_what_to_install(
    tmp_path: Path, lacking: str
) -> None:
    given = (("--postgres", tmp_path), {}) if lacking == NO_POSTGRES else ((), {"JAVA_HOME": tmp_path})
    done = run(tmp_path / "lake", *given[0], **given[1])
    assert (done.returncode, done.stdout) == (2, "")
    [said] = done.stderr.splitlines()
    assert said.startswith(lacking) and "apt-get install" in said and "recorded.py shows the same" in said
    assert not (tmp_path / "lake").exists()


@pytest.mark.both
@pytest.mark.xdist_group("kafka")  # one worker alone has servers in Java
def test_the_pipeline_ends_with_the_rows_of_the_database_and_leaves_nothing_running(
    tmp_path: Path, scratch: Path
) -> None:
    """The deep tier fetches Debezium; the quick one runs the whole where everything is there, and else says why not."""
    fetch = sized((), ("--fetch",))
    done = run(tmp_path, *fetch, TMPDIR=scratch)
    assert not list(scratch.iterdir())
    assert not [entry for entry in Path("/proc").glob("[0-9]*/cmdline") if str(scratch) in command_of(entry)]
    if lacking := lacks(fetched=bool(fetch)):
        assert done.returncode == 2 and done.stdout == "" and done.stderr.startswith(lacking)
        return
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("The table has the 4 rows that PostgreSQL ended with.\n")
    table = hoodoo.open(tmp_path / "orders")
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == [1, 4, 5, 30]
    assert table.verify().problems == []


def lacks(fetched: bool) -> str:
    """What the example has to say of this machine; '' where everything is there."""
    folders = (*Path("/usr/lib/postgresql").glob("*/bin"), *map(Path, os.get_exec_path()))
    if not any((folder / "initdb").exists() for folder in folders):
        return NO_POSTGRES
    if os.geteuid() == 0 and "\npostgres:" not in Path("/etc/passwd").read_text():
        return "PostgreSQL does not run as root"
    return "" if fetched or (ROOT / ".jars" / "debezium").exists() else "The jars of Debezium are not here"


def command_of(entry: Path) -> str:
    try:
        return entry.read_text(errors="replace")
    except OSError:  # it has ended
        return ""
