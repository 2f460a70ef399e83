"""The command line beyond rows: services, what people see, errors and exit codes, and as processes of its own."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import re
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path
from typing import Any

import golden_tables as golden
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from cli_files import COLUMNS, json_file, row
from figures import record
from patience import PATIENCE_S, wait_for

import hoodoo
from hoodoo.cli.main import parser
from hoodoo.cli.overview import GROUPS
from hoodoo.compactor.compaction import plans
from hoodoo.format.log import block as log_block

UTC = dt.timezone.utc


# ---- services
def test_compact_clean_and_verify_say_what_they_did(trips: Path, machine: Any) -> None:
    assert machine("compact", trips, "--logs-min", "2")["groups"] == 0
    assert machine("compact", trips)["groups"] == 1
    assert machine("clean", trips)["files"] == 0
    hoodoo.open(trips).upsert(
        pa.table(
            {
                "id": ["a"],
                "city": ["x"],
                "at": pa.array([dt.datetime(2026, 2, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
                "fare": [0.0],
            }
        )
    )
    assert machine("clean", trips, "--retain-hours", "0", "--retain-commits", "1")["files"] == 2
    nothing = {"rolled_back": 0, "files": 0, "bytes": 0, "kinds": {}, "kept": 0, "external": []}
    assert machine("sweep", trips) == nothing
    report = machine("verify", trips)
    assert (report["ok"], report["rows"], report["problems"]) == (True, 3, [])


def test_a_sweep_says_which_kinds_of_orphans_it_found(trips: Path, machine: Any, run: Any) -> None:
    live = next(Path(trips).rglob("*.parquet"))
    pending = hoodoo.open(trips).handle.context().timeline.begin("deltacommit")
    pending.start()
    live.with_name(f"{live.name.partition('_')[0]}_0-0-0_{pending.instant}.parquet").write_bytes(live.read_bytes())
    Path(trips, ".hoodie/.hoodoo/index", f"abc_{pending.instant}").write_bytes(b"x")
    said = machine("sweep", trips, "--older-than-hours", "0")
    assert said["rolled_back"] == 1
    live.with_name(f"{live.name.partition('_')[0]}_0-0-0_{pending.instant}.parquet").write_bytes(
        live.read_bytes()
    )  # a slow owner goes on
    Path(trips, ".hoodie/.hoodoo/index", f"abc_{pending.instant}").write_bytes(b"x")
    said = machine("sweep", trips, "--older-than-hours", "0")
    assert (said["kinds"], said["files"], said["kept"]) == ({"base_files": 1, "index_entries": 1}, 2, 0)
    assert "base_files" not in run("sweep", trips)[1]


def test_a_purge_proves_that_no_file_holds_the_keys_and_exits_with_1_if_one_may(
    tmp_path: Path, trips: Path, machine: Any, run: Any
) -> None:
    keys = json_file(tmp_path / "keys.jsonl", [{"id": "a", "city": "x"}])
    run("savepoint", trips, "eod")
    code, _, err = run("purge", trips, keys, "--json")
    assert (code, json.loads(err)["error"]["code"]) == (1, "PURGE_BLOCKED") and "eod" in err
    run("savepoint", trips, "eod", "--delete")
    code, out, _ = run("purge", trips, keys, "--json")
    said = json.loads(out)
    assert (code, said["proved"], bool(said["bounds"]), bool(said["bounds_until"])) == (1, False, True, True)
    assert (said["files_proved"], said["keys"], said["rows_deleted"], said["holders"], said["pending"]) == (
        True,
        1,
        1,
        [],
        [],
    )
    table = hoodoo.open(trips)
    live = next(path for path in Path(trips).rglob("*.parquet") if path.parent.name == "city=x")
    attempt = table.handle.context().timeline.begin("deltacommit")
    attempt.start()
    live.with_name(f"{live.name.partition('_')[0]}_0-0-0_{attempt.instant}.parquet").write_bytes(live.read_bytes())
    keys = json_file(tmp_path / "more.jsonl", [{"id": "b", "city": "x"}])
    code, out, _ = run("purge", trips, keys)
    assert code == 1 and attempt.instant in out.replace("\n", "")


def test_expire_names_the_partitions_it_dropped(trips: Path, machine: Any, run: Any) -> None:
    code, _, err = run("expire", trips)
    assert code == 1 and "partition_ttl_hours" in err
    assert machine("expire", trips, "--older-than-hours", "1")["partitions"] == []
    newest = hoodoo.open(trips).handle.history.head().completed_at
    wait_for(lambda: time.time() * 1000 > newest + 500, "rows that are older than 50 ms")
    said = machine("expire", trips, "--older-than-hours", str(0.05 / 3600))
    assert said["partitions"] == ["city=x", "city=y"] and said["rows"] == 3
    assert machine("clean", trips, "--retain-versions", "1")["files"] == 0


def test_services_shows_figures_and_says_what_to_do(trips: Path, machine: Any, run: Any) -> None:
    said = machine("services", trips)
    assert (
        said["figures"]["logs_max"],
        said["figures"]["groups_behind"],
        said["workers"],
        said["plans"],
        said["held"],
    ) == (1, 1, {}, {}, {})
    assert said["advice"] == []
    assert "Nothing is due." in run("services", trips)[1]
    table = hoodoo.open(trips)
    table.set_options(compact_after_logs=None)
    for number in range(20):
        table.upsert(
            pa.table(
                {
                    "id": ["a"],
                    "city": ["x"],
                    "at": pa.array([dt.datetime(2026, 3, 1 + number, tzinfo=UTC)], pa.timestamp("us", "UTC")),
                    "fare": [0.0],
                }
            ),
        )
    out = run("services", trips)[1].replace("\n", " ")
    assert f"start `hoodoo worker {trips}`" in out


def test_cluster_packs_small_files_and_sorts_by_columns(trips: Path, machine: Any, run: Any) -> None:
    table = hoodoo.open(trips)
    at = pa.array([dt.datetime(2026, 3, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    for number in range(6):
        table.insert(pa.table({"id": [f"n{number}"], "city": ["z"], "at": at, "fare": [float(number)]}), bulk=True)
    said = machine("cluster", trips, "--groups-at-once", "1", "--memory", str(64 << 20))
    assert said["units"] == 1 and len(list(hoodoo.open(trips).handle.history.head().groups(["city=z"]))) == 1
    assert machine("cluster", trips, "--sort-by", "fare,id", "--order", "zorder")["units"] >= 1
    code, _, err = run("cluster", trips, "--sort-by", "nothing", "--json")
    assert (code, json.loads(err)["error"]["code"]) == (1, "COLUMN")
    with pytest.raises(hoodoo.PartitionValueError):
        table.maintenance.cluster(partitions=[{"nothing": 1}])
    assert table.maintenance.cluster(sort_by="id", partitions=["z"]).files_before == 1


def test_compact_takes_limits_and_a_strategy(trips: Path, machine: Any, run: Any) -> None:
    assert (
        machine(
            "compact",
            trips,
            "--strategy",
            "newest_partitions",
            "--memory",
            str(64 << 20),
            "--max-bytes-per-second",
            "1GB",
            "--groups-at-once",
            "1",
        )["groups"]
        == 1
    )
    code, _, err = run("compact", trips, "--memory", "1000", "--json")
    assert (code, json.loads(err)["error"]["code"]) == (1, "OPTION")


def test_a_worker_on_spark_runs_once(trips: Path, run: Any, spark: Any) -> None:
    code, out, _ = run("worker", trips, "--engine", "spark", "--once", "--logs-min", "1", "--json")
    assert code == 0
    assert [entry["event"] for entry in map(json.loads, out.splitlines())][:3] == ["started", "planned", "compacted"]


def test_a_worker_at_a_terminal_shows_how_far_the_plan_in_hand_is(tmp_path: Path) -> None:
    table = hoodoo.create(
        tmp_path / "t",
        pa.schema([("id", pa.int64()), ("part", pa.int64()), ("text", pa.string())]),
        key="id",
        partition_by="part",
        compact_after_logs=None,
    )
    for text in "abc":
        table.upsert(
            pa.table({"id": range(3000), "part": [number % 3 for number in range(3000)], "text": [text] * 3000})
        )
    ours, theirs = os.openpty()
    said = b""
    command = [
        sys.executable,
        "-m",
        "hoodoo",
        "worker",
        table.path,
        "--once",
        "--logs-min",
        "1",
        "--max-bytes-per-second",
        "150000",
        "--services",
        "compact",
    ]
    with subprocess.Popen(command, stderr=theirs, env={**os.environ, "TERM": "xterm", "COLUMNS": "200"}) as process:
        os.close(theirs)
        while True:
            try:
                said += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
        assert process.wait(PATIENCE_S) == 0
    os.close(ours)
    assert b"0/3" in said and b"event=compacted" in said


def test_verify_of_a_damaged_table_exits_with_1_and_names_the_file(trips: Path, run: Any) -> None:
    damaged = next(Path(trips).rglob("*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    code, out, _ = run("verify", trips, "--json")
    report = json.loads(out)
    assert (code, report["ok"], report["problems"][0]["code"]) == (1, False, "DAMAGED_FILE")
    code, out, _ = run("verify", trips)
    assert code == 1 and damaged.name in out.replace("\n", "")


def test_adopt_upgrades_a_table_of_version_6(tmp_path: Path, machine: Any, run: Any) -> None:
    path = str(golden.unpack("v6_mor_by_commit", tmp_path))
    assert machine("info", path)["rows"] == 7
    code, out, err = run("compact", path)
    assert code == 1 and "hoodoo adopt PATH" in out + err
    done = machine("adopt", path)
    assert (done["version"], done["compacted"]) == (6, 1)
    assert machine("info", path)["rows"] == 7 and machine("adopt", path)["version"] == 9


def test_salvage_says_what_is_damaged_and_loses_nothing_unasked(
    trips: Path, machine: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert machine("salvage", trips, "--dry-run") | {"rows": 0} == {
        "ok": True,
        "dry_run": True,
        "groups": 0,
        "rows": 0,
        "places": [],
        "lost": [],
        "kept_aside": [],
        "instant": "",
    }
    table = hoodoo.open(trips)
    before = len(table.scan().to_arrow())
    damaged = table.scan().to_arrow().slice(0, 1)
    real = log_block.encode_records
    monkeypatch.setattr(
        log_block, "encode_records", lambda rows, schema: (real(rows, schema)[0][::-1].copy(), real(rows, schema)[1])
    )
    table.upsert(damaged)
    monkeypatch.undo()
    code, out, _ = run("salvage", trips, "--dry-run", "--json")
    found = json.loads(out)
    assert (code, found["ok"], found["groups"], len(found["places"])) == (1, False, 1, 1)
    code, out, err = run("salvage", trips, "--json")
    assert (code, out, json.loads(err)["error"]["code"]) == (1, "", "OPTION") and "--accept-loss" in err
    code, out, _ = run("salvage", trips, "--accept-loss")
    assert code == 0 and "salvaged" in out
    assert len(table.scan().to_arrow()) == before and machine("verify", trips)["ok"]


def test_rollback_ends_a_pending_instant_and_refuses_a_completed_one(trips: Path, machine: Any, run: Any) -> None:
    table = hoodoo.open(trips)
    pending = table.handle.context().timeline.begin("deltacommit").instant
    assert machine("rollback", trips, pending) == {"rolled_back": pending}
    code, _, err = run("rollback", trips, table.inspect.timeline()[1].instant, "--json")
    assert (code, json.loads(err)["error"]["code"]) == (1, "ALREADY_COMMITTED") and "hoodoo restore PATH 1" in err


def test_savepoints_are_named_listed_restored_and_given_up(trips: Path, machine: Any, lines: Any, run: Any) -> None:
    before = sorted(map(str, lines("scan", trips)))
    saved = machine("savepoint", trips, "end-of-day")
    assert saved["slot"] == 3
    [listed] = lines("savepoint", trips)
    assert (listed["name"], listed["slot"]) == ("end-of-day", 3) and saved["cursor"].startswith(listed["cursor"])
    table = hoodoo.open(trips)
    table.delete(table.scan().to_arrow())
    assert sorted(map(str, lines("scan", trips, "--as-of", "end-of-day"))) == before and lines("scan", trips) == []
    assert machine("restore", trips, "end-of-day")["inserted"] == 3
    assert sorted(map(str, lines("scan", trips))) == before
    assert machine("savepoint", trips, "end-of-day", "--delete") == {"deleted": "end-of-day"}
    code, _, err = run("savepoint", trips, "end-of-day", "--delete", "--json")
    assert (code, json.loads(err)["error"]["code"]) == (1, "POSITION")


def test_an_export_answers_in_json_and_asks_for_a_format(trips: Path, machine: Any, run: Any) -> None:
    done = machine("export", trips, "--delta", "--iceberg")
    slot = hoodoo.open(trips).cursor.seq
    assert done["slot"] == slot and done["iceberg"]["metadata"] == "metadata/v1.metadata.json"
    assert (trips / done["iceberg"]["metadata"]).exists() and done["delta"]["versions"] == done["delta"]["version"] + 1
    assert machine("export", trips, "--delta", "--rebuild")["delta"]["version"] == done["delta"]["version"] + 1
    assert machine("export", trips, "--iceberg", "--rebuild", "--history", "all")["iceberg"]["snapshots"] > 1
    three = machine("export", trips, "--iceberg", "--iceberg-version", "3")["iceberg"]["metadata"]
    assert json.loads((trips / three).read_text())["format-version"] == 3
    assert run("export", trips, "--iceberg", "--iceberg-version", "2")[0] == 1
    code, _, err = run("export", trips, "--json")
    error = json.loads(err)["error"]
    assert (code, error["code"]) == (1, "OPTION") and "--delta" in error["message"] and "--iceberg" in error["message"]


def test_archive_and_resolve_answer_in_json(trips: Path, machine: Any) -> None:
    assert machine("archive", trips) == {"slots": 0, "instants": 0, "claims": 0, "oldest_slot": 1, "kept_by": "age"}
    table = hoodoo.open(trips)
    assert machine("resolve", trips, table.inspect.timeline()[1].instant)["committed"] is True
    pending = table.handle.context().timeline.begin("deltacommit").instant
    assert machine("resolve", trips, pending) == {"instant": pending, "committed": False}
    assert machine("resolve", trips, pending)["committed"] is False


def test_a_worker_that_runs_once_leaves_nothing_to_do_and_records_json(trips: Path, lines: Any) -> None:
    plans.commit_compaction_plan(hoodoo.open(trips).handle.context(), plans.plan_groups_with_logs)
    records = lines("worker", trips, "--once")
    assert [record["event"] for record in records] == ["started", "compacted", "stopped"]
    assert hoodoo.open(trips).maintenance.lag().groups_behind == 0


def test_a_worker_serves_the_other_tables_if_one_does_not_exist(trips: Path, run: Any, tmp_path: Path) -> None:
    code, _, err = run("worker", trips, tmp_path / "nope", "--once")
    assert code == 1 and "event=table_missing" in err and f"table={tmp_path / 'nope'}" in err
    assert "event=started" in err and "finished=True" in err
    code, _, err = run("worker", tmp_path / "nope", "--once")
    assert code == 1 and "TABLE_NOT_FOUND" in err


def test_a_worker_run_by_hand_writes_one_record_a_line_on_stderr(trips: Path, run: Any) -> None:
    code, out, err = run("worker", trips, "--once", "--services", "clean", "--poll", "0.1")
    assert (code, out) == (0, "")
    assert all(re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z INFO event=\w+ ", line) for line in err.splitlines())
    code, _, err = run("worker", trips, "--services", "polish")
    assert code == 1 and "polish" in err


def test_check_store_lists_its_checks_and_leaves_nothing(tmp_path: Path, machine: Any, run: Any) -> None:
    said = machine("check-store", tmp_path / "new")
    assert said["passed"] and len(said["checks"]) == 10 and all(check["passed"] for check in said["checks"])
    assert not (tmp_path / "new").exists()
    (tmp_path / "there").mkdir()
    assert "put-if-absent" in run("check-store", tmp_path / "there")[1] and (tmp_path / "there").is_dir()


def test_a_store_that_fails_a_check_exits_with_1(tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from hoodoo.storage.local import LocalStore

    monkeypatch.setattr(LocalStore, "put_if_absent", lambda self, key, data, durable=True: self.put(key, data))
    code, out, _ = run("check-store", tmp_path / "s", "--json")
    said = json.loads(out)
    assert code == 1 and not said["passed"]
    assert {"name": "a second put-if-absent of a key is refused", "passed": False} in said["checks"]


# ---- what people see
def test_people_get_tables(trips: Path, run: Any) -> None:
    code, out, err = run("scan", trips)
    assert (code, err) == (0, "")
    assert "fare" in out and "2026-01-02 00:00:00Z" in out
    assert "next --since hoodoo:" in run("incremental", trips, "--since", "earliest")[1]
    assert "UPSERT" in run("timeline", trips)[1] and "deltacommit" in run("timeline", trips, "--wide")[1]
    assert "inserted" in run("upsert", trips, trips.parent / "first.jsonl")[1]


def test_people_see_the_first_rows_and_how_to_get_more(
    tmp_path: Path, trips: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hoodoo.cli.show.CommandOutput.piped", property(lambda self: False))  # as at a terminal
    run("upsert", trips, json_file(tmp_path / "many.jsonl", [row(f"k{n}") for n in range(50)]))
    out = run("scan", trips)[1]
    assert "the first 20 rows" in out
    assert sum("2026-01" in line for line in out.splitlines()) == 20
    assert sum("2026-01" in line for line in run("scan", trips, "--limit", 100)[1].splitlines()) == 53


def test_no_control_character_of_the_data_reaches_the_terminal(tmp_path: Path, trips: Path, run: Any) -> None:
    evil = "\x1b[31mred\x07\r\n\u202e[bold]x[/bold]"
    assert run("upsert", trips, json_file(tmp_path / "evil.jsonl", [row(evil)]))[0] == 0
    for arguments in (
        ("scan", trips),
        ("scan", trips, "--json"),
        ("scan", tmp_path / evil),
        ("scan", trips, "--where", f"id = '{evil}"),
        ("scan", trips, "--columns", evil),
    ):
        _, out, err = run(*arguments)
        said = (out + err).replace("\n", "")
        assert not [sign for sign in said if not sign.isprintable()], arguments
    assert "[bold]x[/bold]" in run("scan", trips)[1]


def test_secrets_in_a_url_are_not_repeated(run: Any) -> None:
    for flags in ((), ("--json",)):
        code, out, err = run("scan", "https://user:hunter2@host/t", *flags)
        assert code == 1 and "hunter2" not in out + err
        code, out, err = run("check-store", "s3://bucket/x", "--endpoint", "http://user:hunter2@127.0.0.1:1", *flags)
        assert code == 1 and "hunter2" not in out + err


# ---- errors and exit codes
def test_an_error_is_a_line_for_people_and_a_document_for_machines(tmp_path: Path, run: Any) -> None:
    code, out, err = run("scan", tmp_path / "nothing", "--json")
    assert (code, out) == (1, "")
    assert set(json.loads(err)) == {"error"} and json.loads(err)["error"]["code"] == "TABLE_NOT_FOUND"
    code, out, err = run("scan", tmp_path / "nothing")
    assert (code, out) == (1, "") and err.startswith("TABLE_NOT_FOUND: ")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["polish"],
        ["scan"],
        ["create", "p", "--key", "id"],
        ["create", "p", "--schema", "a int", "--schema-from", "f", "--key", "a"],
        ["scan", "p", "--limit", "-1"],
    ],
)
def test_a_wrong_command_line_exits_with_2(run: Any, arguments: list[str]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "") and ("usage: hoodoo" in err or "--help lists all" in err)


def test_an_unknown_option_of_a_table_names_the_nearest(tmp_path: Path, run: Any) -> None:
    code, _, err = run("create", tmp_path / "t", "--schema", "id int", "--key", "id", "--option", "compact_after_log=3")
    assert code == 1 and "compact_after_logs" in err


def test_a_bug_shows_its_traceback_to_people_and_a_document_to_machines(
    trips: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("secret_key=hunter2")

    monkeypatch.setattr(hoodoo.Table, "scan", broken)
    code, _, err = run("scan", trips, "--json")
    assert (code, json.loads(err)["error"]["code"]) == (1, "UNEXPECTED")
    code, _, err = run("scan", trips)
    assert code == 1 and "Traceback" in err and "hunter2" not in err


# ---- as processes
def hoodoo_process(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hoodoo", *map(str, arguments)], capture_output=True, text=True, timeout=60, **options
    )


def test_help_shows_every_command_once_and_grouped_by_task() -> None:
    began = time.monotonic()
    said = hoodoo_process("--help")
    record("command line, help", seconds=round(time.monotonic() - began, 2))
    lines = said.stdout.splitlines()
    assert said.returncode == 0 and len(lines) <= 60 and max(map(len, lines)) <= 80
    commands = next(one.choices for one in parser()._actions if isinstance(one, argparse._SubParsersAction))
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(commands)
    assert [line.split()[0] for line in lines if line.startswith("  ")] == [*chain(*GROUPS.values())]
    assert [line[:-1] for line in lines if line.endswith(":")] == [*GROUPS]


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys, hoodoo.cli.main; hoodoo.cli.main.main(['--help']); print([m for m in ('pyarrow', 'numpy', 'rich', "
        "'pandas', 'pyspark') if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert said.stdout.endswith("[]\n")


def test_a_command_that_reads_history_loads_no_ingestion_and_no_other_engine(tmp_path: Path) -> None:
    """`hoodoo history` loaded 318 modules of hoodoo, Kafka and Debezium among them, before it showed three lines."""
    hoodoo.create(tmp_path / "t", "id int", key="id")
    code = (
        f"import sys, hoodoo.cli.main; hoodoo.cli.main.main(['history', {str(tmp_path / 't')!r}]); "
        "print(*[m for m in sys.modules if m.startswith(('hoodoo.ingestion', 'hoodoo.sources', 'hoodoo.cli.ingest', "
        "'hoodoo.compactor.service_loop', 'confluent_kafka', 'duckdb', 'pandas', 'polars', 'pyspark', 'boto3'))]); "
        "print(sum(m.startswith('hoodoo.') for m in sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    *_, loaded, number = said.stdout.splitlines()
    assert loaded == "hoodoo.cli.ingest_arguments" and int(number) <= 150, said.stdout


def test_the_version_is_the_packages() -> None:
    assert hoodoo_process("--version").stdout == f"{hoodoo.__version__}\n"


def test_a_table_can_be_kept_with_pipes_alone(tmp_path: Path) -> None:
    path = tmp_path / "t"
    assert hoodoo_process("create", path, "--schema", COLUMNS, "--key", "id", "--json").returncode == 0
    rows = "".join(json.dumps(row(name)) + "\n" for name in "abc")
    assert json.loads(hoodoo_process("upsert", path, "-", "--json", input=rows).stdout)["inserted"] == 3
    assert sorted(json.loads(line)["id"] for line in hoodoo_process("scan", path, "--json").stdout.splitlines()) == [
        "a",
        "b",
        "c",
    ]


def test_a_reader_that_stops_early_is_no_traceback(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64()), ("text", pa.string())]), key="id")
    table.upsert(pa.table({"id": range(50_000), "text": ["x" * 50] * 50_000}))
    command = f"'{sys.executable}' -m hoodoo scan '{tmp_path / 't'}' --json | head -1"
    said = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert json.loads(said.stdout)["text"] == "x" * 50
    assert said.stderr == ""


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_changes_neither_the_commit_nor_the_exit_code(tmp_path: Path, closed: str) -> None:
    """The row was committed, and the command ended with 1 and a traceback."""
    table = hoodoo.create(tmp_path / "t", "id bigint", key="id")
    (tmp_path / "rows.jsonl").write_text('{"id": 1}\n')
    line = f"{sys.executable} -m hoodoo upsert {tmp_path / 't'} {tmp_path / 'rows.jsonl'} {closed}"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, table.count(), "Traceback" in done.stderr) == (0, 1, False)


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", r"\u20ac"), ("latin-1", r"\u20ac"), ("utf-8", "€")])
def test_characters_that_the_terminal_lacks_are_escaped(tmp_path: Path, encoding: str, shown: str) -> None:
    hoodoo.create(tmp_path / "t", "id bigint, s string", key="id").insert([{"id": 1, "s": None}, {"id": 2, "s": "€"}])
    done = hoodoo_process("scan", tmp_path / "t", env=os.environ | {"PYTHONIOENCODING": encoding}, encoding=encoding)
    assert done.returncode == 0 and shown in done.stdout and not done.stderr
