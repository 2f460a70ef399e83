"""What the pipeline needs and does not install: found, or said in one sentence, before anything is started."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
from pathlib import Path

from debezium_jars import DEBEZIUM  # from here on what the tests share can be imported
from kafka_jars import KAFKA
from listed_jars import NotFetched

_PROGRAMS = ("initdb", "postgres", "psql")
_DEBIAN = Path("/usr/lib/postgresql")


class Missing(Exception):
    """Something is not here; the text says what to install."""


def find_java() -> None:
    """Leave in JAVA_HOME where Java is. Raises Missing."""
    program = shutil.which("java", path=f"{os.environ['JAVA_HOME']}/bin" if os.environ.get("JAVA_HOME") else None)
    if program is None:
        raise Missing(
            "No Java was found: install Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless), or set "
            "JAVA_HOME to where it is."
        )
    os.environ["JAVA_HOME"] = str(Path(program).resolve().parents[1])


def find_postgres(named: str | None) -> Path:
    """The folder of PostgreSQL's programs: the one that is named, Debian's newest, or one of PATH. Raises Missing."""
    on_path = [Path(folder) for folder in os.get_exec_path()]
    debian = sorted(_DEBIAN.glob("[0-9]*/bin"), key=lambda folder: float(folder.parent.name), reverse=True)
    for folder in [Path(named)] if named else [*debian, *on_path]:
        if all((folder / program).exists() for program in _PROGRAMS):
            break
    else:
        raise Missing(
            f"PostgreSQL was not found{f' in {named}' if named else ''}: install it (Debian: apt-get install "
            "postgresql), or name the folder of its programs by --postgres."
        )
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            raise Missing(
                "PostgreSQL does not run as root: add a user postgres (useradd --system postgres), or run this as "
                "another user."
            ) from None
    return folder


def require_jars(fetch: bool) -> None:
    """Require Kafka with its client, and Debezium, which may be fetched. Raises Missing."""
    if importlib.util.find_spec("confluent_kafka") is None:
        raise Missing("The client of Kafka is not installed: pip install 'hoodoo[kafka]'.")
    if KAFKA.wrong():
        raise Missing("The jars of Kafka are not here: run make kafka.")
    if DEBEZIUM.wrong() and not fetch:
        raise Missing("The jars of Debezium are not here: add --fetch, and they are fetched, once.")
    try:
        DEBEZIUM.fetch()
    except NotFetched as problem:
        raise Missing(f"{problem}\n") from None
