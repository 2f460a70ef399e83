"""PostgreSQL, and Debezium in Kafka Connect: on loopback ports and in folders of their own, stopped with all they have.

Knows no rows; the broker is that of the tests.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debezium_jars import DEBEZIUM
from java_program import java
from kafka_broker import draw_port
from patience import PATIENCE_S, NotInTime, wait_for

_DATABASE = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",  # without it nobody can follow
    "fsync": "off",  # what it has is thrown away
    "shared_buffers": "32MB",
}
_WORKER = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "plugin.discovery": "service_load",  # the class path is not searched through
    "listeners": "http://127.0.0.1:0",
    "offset.flush.interval.ms": "1000",
}
_CONNECTOR = {
    "name": "shop",
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "tasks.max": "1",
    "topic.prefix": "pg",
    "plugin.name": "pgoutput",  # PostgreSQL brings it
    "slot.name": "hoodoo",
    "publication.name": "hoodoo",
    "publication.autocreate.mode": "filtered",
    "snapshot.mode": "initial",
    "decimal.handling.mode": "string",
    "poll.interval.ms": "50",
}
_JVM = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]


@dataclass(frozen=True)
class Server:
    """A process that runs."""

    name: str
    process: subprocess.Popen[bytes]

    def require(self) -> bool:
        """Raise NotInTime if it has ended."""
        if self.process.poll() is not None:
            raise NotInTime(f"{self.name} ended")
        return True


@dataclass(frozen=True)
class Postgres:
    """A database that runs."""

    port: int
    password: str
    programs: Path

    def run(self, sql: str) -> bytes:
        """Run statements in one transaction; what the last one gives."""
        command = [self.programs / "psql", "-qAtX", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.port)]
        said = {"PGPASSWORD": self.password, "PGTZ": "UTC", "PGCLIENTENCODING": "UTF8"}
        command += ["-U", "postgres", "-d", "postgres", "-c", sql]
        return subprocess.run(command, check=True, capture_output=True, env={**os.environ, **said}).stdout


@contextmanager
def postgres(folder: Path, programs: Path) -> Iterator[Postgres]:
    """A new database in a new folder."""
    database = Postgres(draw_port(), secrets.token_hex(16), programs)
    folder.mkdir(mode=0o700)
    password, data = folder / "password", folder / "data"
    password.write_text(database.password)
    them: dict[str, Any] = {"cwd": folder, "stdin": subprocess.DEVNULL}
    if os.geteuid() == 0:  # it refuses to run as root
        group = pwd.getpwnam("postgres").pw_gid
        them |= {"user": "postgres", "group": group, "extra_groups": []}
        for path in (folder, password):
            shutil.chown(path, "postgres", group)
    make = [programs / "initdb", "--pgdata", data, "--username=postgres", "--pwfile", password, "--no-sync"]
    make += ["--auth=scram-sha-256", "--encoding=UTF8", "--no-locale"]
    done = subprocess.run(make, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **them)
    if done.returncode:
        raise NotInTime(f"initdb made no database: {done.stdout[-3000:]}")
    settings = {**_DATABASE, "port": str(database.port)}
    command = [programs / "postgres", "-D", data, *(f"--{name}={value}" for name, value in settings.items())]
    with _running("PostgreSQL", command, folder.with_suffix(".log"), signal.SIGQUIT, **them) as server:
        wait_for(lambda: server.require() and _answers(database), "an answer of PostgreSQL")
        yield database


@contextmanager
def debezium(folder: Path, kafka: str, database: Postgres, table: str) -> Iterator[Server]:
    """Debezium, which follows a table of the database, and writes its changes into a topic that is there."""
    folder.mkdir(mode=0o700)
    place = {"bootstrap.servers": kafka, "offset.storage.file.filename": str(folder / "offsets")}
    source = {
        "database.hostname": "127.0.0.1",
        "database.port": str(database.port),
        "database.user": "postgres",
        "database.password": database.password,
        "database.dbname": "postgres",
        "table.include.list": table,
    }
    files = [
        _properties(folder / "worker.properties", _WORKER | place),
        _properties(folder / "connector.properties", _CONNECTOR | source),
    ]
    program = ["-cp", DEBEZIUM.class_path(), "org.apache.kafka.connect.cli.ConnectStandalone"]
    # what it knows is thrown away, and it takes its time to end in order
    with _running("Kafka Connect", [java(), *_JVM, *program, *files], folder / "log", signal.SIGKILL) as server:
        yield server


@contextmanager
def _running(name: str, command: list[Any], log: Path, end: signal.Signals, **more: Any) -> Iterator[Server]:
    """Run a program; what does not come in time is told with the last that it has printed."""
    with open(log, "wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, **{"stdin": subprocess.DEVNULL, **more})
    try:
        yield Server(name, process)
    except NotInTime as problem:
        raise NotInTime(f"{problem}\n\n{name} says:\n{log.read_text(errors='replace')[-3000:]}") from None
    finally:
        process.send_signal(end)
        process.wait(PATIENCE_S)


def _answers(database: Postgres) -> bool:
    try:
        return bool(database.run("SELECT 1"))
    except subprocess.CalledProcessError:
        return False


def _properties(file: Path, settings: Mapping[str, str]) -> Path:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file
