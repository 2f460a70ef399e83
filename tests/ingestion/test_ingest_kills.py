"""Processes of one job are killed at any moment, and each row is in exactly one commit all the same."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from patience import wait_for
from tiers import sized

import hoodoo

PROCESSES = 3
KILLS = sized(4, 25)
FILES, LINES = sized((40, 25), (200, 100))
BAD_EVERY = 97


@pytest.mark.both
def test_each_row_is_in_one_commit_whoever_is_killed(tmp_path: Path) -> None:
    rng = random.Random(7)
    folder, path = tmp_path / "in", tmp_path / "t"
    folder.mkdir()
    table = hoodoo.create(path, {"id": "bigint", "v": "string"}, key="id", compact_after_logs=20)
    good, bad = list[int](), 0
    for number in range(FILES):
        lines = []
        for line in range(LINES):
            row = number * LINES + line
            if row % BAD_EVERY:
                good.append(row)
                lines.append(json.dumps({"id": row, "v": f"v{row}"}))
            else:
                bad += 1
                lines.append(f'{{"id": {row}')
        (folder / f"{number:04d}.jsonl").write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "hoodoo", "ingest", str(folder), str(path), "--name", "job"]
    command += ["--settle-seconds", "0", "--max-bad-share", "1", "--poll-seconds", "0.05"]
    command += ["--max-rows", str(LINES), "--min-seconds", "0"]  # a file a commit, and one right behind the other

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as said:
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)

    log = tmp_path / "log"
    running = [start() for _ in range(PROCESSES)]
    try:
        for _ in range(KILLS):
            before = table.inspect.application("job").version
            wait_for(
                lambda seen=before: table.inspect.application("job").version > seen + 1 or done(table),
                "two more commits",
            )
            if done(table):
                break
            time.sleep(rng.random() * 0.1)  # at any moment of what they do; nothing is said of how long that takes
            victim = running.pop(rng.randrange(PROCESSES))
            victim.kill()
            victim.wait()
            running.append(start())
        wait_for(lambda: done(table), "all files to be taken")
        for process in running:
            process.terminate()
        for process in running:
            # 5: others were always first; the signal: it came before the process had begun to listen to it
            assert process.wait() in (0, 5, -signal.SIGTERM), log.read_text()
    finally:
        for process in running:
            process.kill()
            process.wait()
    changes = table.changes(1, versions="all").to_arrow()
    assert sorted(one["id"] for one in changes["after"].to_pylist() if one) == good
    assert set(changes["op"].to_pylist()) == {"i"}
    assert len(table.quarantine().rows()) == bad
    assert table.inspect.application("job").version == FILES - 1
    table.maintenance.sweep(older_than_hours=0)
    assert table.verify().problems == []


def done(table: hoodoo.Table) -> bool:
    return table.inspect.application("job").version == FILES - 1


def test_a_batch_that_does_not_end_in_time_is_given_up_with_exit_code_6(tmp_path: Path) -> None:
    """The batch hangs in a library: Python runs no handler of its own then."""
    landing = tmp_path / "in"
    landing.mkdir()
    (landing / "a.jsonl").write_text('{"id": 1, "v": "x"}\n')
    table = hoodoo.create(tmp_path / "t", {"id": "bigint", "v": "string"}, key="id")
    (tmp_path / "hanging.py").write_text(
        "import ctypes\n"
        "def rows(batch):\n"
        "    print('HANGS', flush=True)\n"
        "    library, lock = ctypes.CDLL(None), ctypes.create_string_buffer(256)\n"
        "    library.pthread_mutex_init(lock, None)\n"
        "    library.pthread_mutex_lock(lock)\n"
        "    library.pthread_mutex_lock(lock)\n"
    )
    words = ["ingest", str(landing), table.path, "--settle-seconds", "0", "--transform", "hanging:rows"]
    with subprocess.Popen(
        [sys.executable, "-m", "hoodoo", *words, "--stop-seconds", "0.1"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "HANGS\n"
        process.send_signal(signal.SIGTERM)
        assert "GAVE_UP" in process.stderr.read()
    assert process.returncode == 6
    assert hoodoo.open(table.path).inspect.application(f"files:{landing}").version == -1
