"""A real S3 server for tests: SeaweedFS from PyPI, on loopback ports of its own, with random credentials; started and
stopped by id.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from patience import PATIENCE_S, NotInTime

BUCKET = "lake"


def place() -> str:
    """A prefix of a test's own. Not by the name of its folder: pytest gives that again once the folder is deleted."""
    return f"s3://{BUCKET}/{secrets.token_hex(4)}"


_LOWEST, _HIGHEST = 11_000, 21_000
"""Ports to draw from: with their twins 10,000 above, all lie below those that a kernel hands out by itself, so that no
socket of another test takes one while the server is down.
"""
_STARTS = 5


def _draw_port() -> int:
    """A port that nobody listens on, and whose gRPC twin 10,000 above is free as well."""
    while True:
        port = _LOWEST + secrets.randbelow(_HIGHEST - _LOWEST)
        with socket.socket() as probe, socket.socket() as twin, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            twin.bind(("127.0.0.1", port + 10_000))
            return port


class Server:
    """A server on its own ports and folder; `kill` and `start` again as often as one likes, the data stays."""

    def __init__(self, folder: Path) -> None:
        access, secret = secrets.token_hex(8), secrets.token_hex(16)
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": access, "secretKey": secret}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        ports = {name: _draw_port() for name in ("master", "volume", "filer", "s3")}
        self.folder, self.port, self._ports = folder, ports["s3"], ports.values()
        self.options = {
            "endpoint": f"http://127.0.0.1:{ports['s3']}",
            "region": "us-east-1",
            "access_key": access,
            "secret_key": secret,
        }
        self.command = [
            str(Path(sysconfig.get_path("scripts"), "weed")),
            "server",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-dir={folder}",
            "-volume.max=200",
            "-master.electionTimeout=1s",
            "-s3",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.config={folder / 's3.json'}",
            *(f"-{name}.port={port}" for name, port in ports.items()),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, or start again, and wait until it takes writes."""
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log, cwd=self.folder)
        _wait(self.options, self._process, self.folder)

    def kill(self) -> None:
        """SIGKILL, in the middle of whatever it does."""
        if self._process:
            self._process.kill()
            self._process.wait(PATIENCE_S)
        for port in self._ports:  # it leaves its local sockets behind
            for socket_file in [
                *Path(tempfile.gettempdir()).glob(f"seaweedfs-*-{port}.sock"),
                *Path(tempfile.gettempdir()).glob(f"seaweedfs-*-{port + 10_000}.sock"),
            ]:
                socket_file.unlink(missing_ok=True)


@contextlib.contextmanager
def server(folder: Path) -> Iterator[dict[str, Any]]:
    """Storage options of a running server with an empty bucket `lake`."""
    running = started(folder)
    try:
        yield running.options
    finally:
        running.kill()  # its data is thrown away, and it takes its time to end in order


def started(folder: Path) -> Server:
    """A server that runs in a new folder below `folder`; on other ports if somebody was quicker to take one."""
    for attempt in range(_STARTS):
        below = folder / str(attempt)
        below.mkdir(parents=True)
        running = Server(below)
        try:
            running.start()
            return running
        except NotInTime:
            running.kill()
            if attempt == _STARTS - 1:
                raise
    raise AssertionError("the last attempt returned or raised")


def _wait(options: dict[str, Any], process: subprocess.Popen[bytes], folder: Path) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=options["endpoint"],
        region_name="us-east-1",
        aws_access_key_id=options["access_key"],
        aws_secret_access_key=options["secret_key"],
        config=Config(connect_timeout=1, read_timeout=1.5, retries={"total_max_attempts": 1}),
    )
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with contextlib.suppress(client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou):
                client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key="ready", Body=b"x")  # answers only once a volume takes writes
            client.delete_object(Bucket=BUCKET, Key="ready")
            return
        except (BotoCoreError, ClientError):
            time.sleep(0.3)
    raise NotInTime(f"SeaweedFS did not start: {(folder / 'server.log').read_text()[-2000:]}")
