"""`hoodoo ingest`: what it takes in, what it says, and by which exit code a program knows what became of it."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from job_files import put
from patience import wait_for

import hoodoo
from hoodoo.ingestion.batch_writer import BatchWriter


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    (tmp_path / "landing").mkdir()
    return tmp_path / "landing"


@pytest.fixture
def table(tmp_path: Path) -> hoodoo.Table:
    return hoodoo.create(tmp_path / "t", {"id": "bigint", "v": "string"}, key="id")


NOW = ("--once", "--settle-seconds", "0")


@pytest.fixture
def machine(lines: Any) -> Any:
    """What the last line says of the whole run; a line before it says what each batch brought."""
    return lambda *arguments: lines(*arguments)[-1]


def test_new_files_are_taken_in_and_the_answer_says_how_far_it_is(
    landing: Path, table: hoodoo.Table, machine: Any, run: Any
) -> None:
    put(landing, "a.jsonl", {"id": 1}, {"id": 2, "more": 3})
    put(landing, "note.txt", "hello")
    said = machine("ingest", landing, table.path, *NOW)
    assert (said["batches"], said["rows"], said["waiting"], said["unknown"]) == (1, 2, 0, ["more"])
    assert said["application"] == f"files:{landing}" and said["passed_over"] == ["note.txt"]
    assert machine("ingest", landing, table.path, *NOW)["batches"] == 0
    code, out, _ = run("ingest", landing, table.path, *NOW)
    assert code == 0 and "ingested" in out


def test_too_many_bad_rows_end_with_3_and_what_is_gone_with_4(landing: Path, table: hoodoo.Table, run: Any) -> None:
    put(landing, "a.jsonl", *["x"] * 200)
    code, _, err = run("ingest", landing, table.path, *NOW)
    assert code == 3 and "200 of 200 rows are bad" in err
    assert run("ingest", landing, table.path, *NOW, "--max-bad-share", "1")[0] == 0
    put(landing, "a.jsonl", {"id": 1})
    code, _, err = run("ingest", landing, table.path, *NOW)
    assert code == 4 and "--on-change again" in err
    assert run("ingest", landing, table.path, *NOW, "--on-change", "again")[0] == 0 and table.scan().count() == 1


def test_one_who_is_always_second_ends_with_5(
    landing: Path, table: hoodoo.Table, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def second(*_: Any) -> Any:
        raise hoodoo.CommitConflict("Another process of application 'job' came first.")

    monkeypatch.setattr(BatchWriter, "commit", second)
    put(landing, "a.jsonl", {"id": 1})
    assert run("ingest", landing, table.path, *NOW)[0] == 5


def test_a_transform_is_found_in_the_working_folder(
    landing: Path, table: hoodoo.Table, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs_of_this_test.py").write_text(
        "import pyarrow.compute as pc\n"
        "def rows(batch):\n"
        "    return batch.set_column(1, 'v', pc.utf8_upper(batch['v']))\n"
    )
    put(landing, "a.jsonl", {"id": 1, "v": "x"})
    assert run("ingest", landing, table.path, *NOW, "--transform", "jobs_of_this_test:rows")[0] == 0
    assert table.scan().to_arrow()["v"].to_pylist() == ["X"]
    for wrong in ("jobs_of_this_test:nothing", "nowhere:rows", "jobs_of_this_test", ":"):
        code, _, err = run("ingest", landing, table.path, *NOW, "--transform", wrong)
        assert code == 1 and "MODULE:FUNCTION" in err


def test_without_once_it_goes_on_until_it_is_told_to_stop(landing: Path, table: hoodoo.Table, run: Any) -> None:
    def later() -> None:
        wait_for(lambda: hoodoo.open(table.path).scan().count() == 1, "the first file")
        put(landing, "b.jsonl", {"id": 2})
        wait_for(lambda: hoodoo.open(table.path).scan().count() == 2, "the second file")
        os.kill(os.getpid(), signal.SIGTERM)

    put(landing, "a.jsonl", {"id": 1})
    other = threading.Thread(target=later)
    other.start()
    code, out, err = run(
        "ingest", landing, table.path, "--settle-seconds", "0", "--poll-seconds", "0.05", "--min-seconds", "0", "--json"
    )
    other.join()
    *batches, end = map(json.loads, out.splitlines())
    assert (code, err, end["batches"]) == (0, "", 2)
    assert [(one["batch"]["version"], one["batch"]["rows"]) for one in batches] == [(0, 1), (1, 1)]
    assert {"plan", "read", "transform", "write"} <= batches[0]["batch"]["seconds"].keys()


def test_a_job_waits_for_a_folder_that_is_gone_and_can_be_stopped_meanwhile(
    landing: Path, table: hoodoo.Table, run: Any
) -> None:
    away, said = landing.with_name("away"), list[str]()

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    def later() -> None:
        wait_for(lambda: hoodoo.open(table.path).scan().count() == 1, "the first file")
        landing.rename(away)
        wait_for(lambda: any("does not respond" in one for one in said), "a look at what is gone")
        put(away, "b.jsonl", {"id": 2})
        away.rename(landing)
        wait_for(lambda: hoodoo.open(table.path).scan().count() == 2, "the second file")
        landing.rename(away)
        wait_for(lambda: sum("does not respond" in one for one in said) == 2, "another look at what is gone")
        os.kill(os.getpid(), signal.SIGTERM)

    put(landing, "a.jsonl", {"id": 1})
    listening, other = Listening(), threading.Thread(target=later)
    logging.getLogger("hoodoo.ingest").addHandler(listening)
    other.start()
    try:
        fast = ("--settle-seconds", "0", "--poll-seconds", "0.05", "--min-seconds", "0")
        code, out, _ = run("ingest", landing, table.path, *fast, "--json")
    finally:
        other.join()
        logging.getLogger("hoodoo.ingest").removeHandler(listening)
    end = json.loads(out.splitlines()[-1])
    assert (code, end["rows"], end["waiting"]) == (0, 2, None)


def test_a_check_reads_what_comes_next_and_writes_nothing(
    landing: Path, table: hoodoo.Table, machine: Any, run: Any, tmp_path: Path
) -> None:
    put(landing, "a.jsonl", {"id": 1, "more": 2}, {"id": 2})
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    said = machine("ingest", landing, table.path, "--settle-seconds", "0", "--check")
    assert (said["rows"], said["bad"], said["unknown"], said["waiting"]) == (2, 0, ["more"], 1)
    put(landing, "b.jsonl", "nonsense", {"v": "x"}, {"id": "seven"})
    code, out, _ = run("ingest", landing, table.path, "--settle-seconds", "0", "--check", "--json")
    said = json.loads(out)
    assert code == 1 and said["bad"] == 3 and any("b.jsonl:line:1" in one for one in said["problems"])
    after = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert {file: content for file, content in after.items() if file.name != "b.jsonl"} == before


def test_a_job_is_reset_and_another_one_goes_on_from_it(
    landing: Path, table: hoodoo.Table, machine: Any, run: Any
) -> None:
    put(landing, "a.jsonl", {"id": 1})
    machine("ingest", landing, table.path, *NOW, "--name", "first")
    said = machine("ingest", landing, table.path, "--name", "first", "--reset", "earliest", "--expect-number", "0")
    assert (said["name"], said["version"]) == ("first", 1)
    assert machine("ingest", landing, table.path, *NOW, "--name", "first")["rows"] == 1
    assert machine("ingest", landing, table.path, *NOW, "--name", "second", "--continue", "first")["rows"] == 0
    code, _, err = run("ingest", landing, table.path, "--name", "first", "--reset", "earliest", "--expect-number", "0")
    assert code == 1 and "expected 0, got 2" in err
    code, _, err = run("ingest", landing, table.path, "--reset", "earliest")
    assert code == 1 and "must be given together" in err


# ---- files of jobs
def test_jobs_of_a_file_take_turns_and_each_goes_its_way(
    landing: Path, table: hoodoo.Table, run: Any, lines: Any, tmp_path: Path
) -> None:
    copy = hoodoo.create(tmp_path / "copy", {"id": "bigint", "v": "string"}, key="id")
    put(landing, "a.jsonl", {"id": 1, "v": "x"})
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(
        f"[[job]]\nsource = '{landing}'\ntable = '{table.path}'\nname = 'first'\nsettle_seconds = 0\n"
        f"[[job]]\nsource = '{table.path}'\ntable = '{copy.path}'\nmax_rows = 10\n"
    )
    said = lines("ingest", jobs, "--once")
    assert [one["application"] for one in said if "application" in one] == ["first", f"table:{table.path}"]
    assert table.scan().count() == 1
    lines("ingest", jobs, "--once")
    assert copy.scan().to_arrow()["v"].to_pylist() == ["x"]
    assert [one["name"] for one in lines("applications", table.path)] == ["first"]
    put(landing, "b.jsonl", *["x"] * 200)
    code, _, err = run("ingest", jobs, "--once")
    assert code == 3 and "first: 200 of 200 rows are bad" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Start each job with [[job]]"),
        ("[job]\nsource = 'a'", "Start each job with [[job]]"),
        ("once = true\n[[job]]\nsource = 'a'\ntable = 't'", "Start each job with [[job]]"),
        ("[[job]]\nsource = 'a'", "Job 1 of 'jobs.toml': Key table is missing"),
        (
            "[[job]]\nsource = 'a'\ntable = 't'\nmax_row = 3",
            "'max_row' is not a valid key of a job. Did you mean 'max_rows'?",
        ),
        ("[[job]]\nsource = 'a'\ntable = 't'\nonce = true", "'once' is not a valid key of a job"),
        ("[[job]]\nsource = 'a'\ntable = 't'\nmax_rows = 'many'", "max_rows"),
        ("[[job]]\nsource = 'a'\ntable = 't'\nmax_rows = true", "max_rows must be an integer, got True"),
        ("[[job]]\nsource = 'a'\ntable = 't'\nmax_rows = '5'", "max_rows must be an integer, got '5'"),
        ("[[job]]\nsource = 'a'\ntable = 't'\nmax_bad_share = '1'", "max_bad_share must be a number, got '1'"),
        ("[[job]]\nsource = 'a'\ntable = 't'\npoll_seconds = nan", "--poll-seconds: 'nan' is not a number of seconds"),
        ("[[job]]\nsource = 'a'\ntable = 't'\nmax_bad_share = 2", "--max-bad-share: '2' is not a number from 0 to 1"),
        ("[[job]]\nsource = 'a'\ntable = 't'\nname = true", "name must be a string or a number, got True"),
        ("[[job]]\nsource = 'a'\ntable = 't'\noperation = 'merge'", "operation must be upsert, insert or bulk_insert"),
        ("[[job]", "Cannot read 'jobs.toml'"),
        ("[[job]]\nsource='kafka://b:1/t'\ntable='{t}'\n[job.settings]\n'enable.auto.commit'='true'", "enable.auto"),
        ("[[job]]\nsource='in'\ntable='{t}'\nname='a'\n[[job]]\nsource='in'\ntable='{t}'\nname='a'", "Two jobs into"),
    ],
    ids=range(17),
)
def test_a_file_that_says_something_else_is_refused_by_the_number_of_its_job(
    table: hoodoo.Table, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("jobs.toml").write_text(text.replace("{t}", str(table.path)))
    code, _, err = run("ingest", "jobs.toml", "--once")
    assert code == 1 and said in " ".join(err.split())


def test_a_job_of_a_file_that_cannot_be_made_is_named_and_none_is_begun(
    landing: Path, table: hoodoo.Table, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    put(landing, "a.jsonl", {"id": 1})
    job = f"[[job]]\nsource = 'landing'\ntable = '{table.path}'\nsettle_seconds = 0\n"
    Path("jobs.toml").write_text(f"{job}[[job]]\nsource = 'landing'\ntable = 'lake/gone'\n")
    code, _, err = run("ingest", "jobs.toml", "--once", "--json")
    said = json.loads(err)["error"]
    assert code == 1 and said["code"] == "TABLE_NOT_FOUND"
    assert said["message"].startswith("Job 2 of 'jobs.toml', from 'landing' into 'lake/gone': ")
    assert table.scan().count() == 0
    Path("jobs.toml").write_text(f"{job}[[job]]\nsource = 'gone'\ntable = '{table.path}'\n")
    code, _, err = run("ingest", "jobs.toml", "--check")
    assert code == 1 and "Job 2 of 'jobs.toml', from 'gone' into" in " ".join(err.split())


def test_what_is_about_one_job_is_not_said_beside_a_file_of_jobs(run: Any, tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text("[[job]]\nsource = 'a'\ntable = 't'\n")
    code, _, err = run("ingest", tmp_path / "jobs.toml", "--max-rows", "5")
    assert code == 1 and "--max-rows applies to a single job" in err
    code, _, err = run("ingest", "landing")
    assert code == 1 and "PATH is missing" in err


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--stop-seconds", "-5", "a number of seconds from 0"),
        ("--stop-seconds", "nan", "a number of seconds from 0"),
        ("--stop-seconds", "inf", "a number of seconds from 0"),
        ("--poll-seconds", "-1", "a number of seconds above 0"),
        ("--poll-seconds", "0", "a number of seconds above 0"),
        ("--poll-seconds", "nan", "a number of seconds above 0"),
        ("--poll-seconds", "1e10", "a number of seconds above 0"),
        ("--grace-seconds", "soon", "a number of seconds from 0"),
        ("--max-bad-share", "2", "a number from 0 to 1"),
        ("--max-rows-per-second", "0", "a number above 0"),
        ("--max-rows-per-second", "inf", "a number above 0"),
        ("--metrics-port", "99999", "a valid port: expected an integer from 0 to 65535"),
        ("--metrics-port", "-1", "a valid number: expected an integer of at least 0"),
    ],
)
def test_a_number_that_an_option_cannot_have_is_refused_by_its_name(
    landing: Path, table: hoodoo.Table, run: Any, option: str, text: str, said: str
) -> None:
    code, _, err = run("ingest", landing, table.path, "--once", option, text)
    assert code == 2 and f"{option}: {text!r} is not {said}" in err and "Traceback" not in err


def test_a_port_that_is_in_use_is_named_with_its_option(
    landing: Path, table: hoodoo.Table, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(*_: Any) -> Any:
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))

    monkeypatch.setattr("hoodoo.compactor.status.metrics.start_http_server", taken)
    code, _, err = run("ingest", landing, table.path, *NOW, "--metrics-port", "9100")
    assert code == 1 and "(--metrics-port) 9100 of 127.0.0.1 cannot be served: Address already in use" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["kafka://broker:9092", "--start", "latest"], "is not a valid Kafka topic. Write kafka://broker:9092/topic"),
        (["kafka:broker/topic"], "is not a valid Kafka topic"),
        (["kafka://b:1/t/u"], "is not a valid Kafka topic"),
        (["kafka://b:1/t", "--grace-seconds", "5"], "--grace-seconds applies only to a folder of files"),
        (["kafka://b:1/t", "--setting", "enable.auto.commit=true"], "Setting 'enable.auto.commit' is not supported"),
        (["kafka://b:1/t", "--settings-from", "nowhere"], "Cannot read 'nowhere'"),
        (["in", "--on-loss", "skip"], "--on-loss applies only to a Kafka topic"),
        (["kafka://b:1/t", "--format", "csv"], "--format csv applies only to a folder"),
        (["landing", "--time-unit", "ms"], "--time-unit applies only to a Kafka topic"),
        (["in", "--format", "debezium-json"], "--format debezium-json applies only to a Kafka topic"),
        (["in", "--registry", "http://r"], "--registry applies only to a Kafka topic"),
        (["kafka://b:1/t", "--registry", "http://r"], "--registry applies only to --format avro or debezium-avro"),
        (["kafka://b:1/t", "--format", "avro"], "--format avro needs --registry URL"),
        (["kafka://b:1/t", "--format", "debezium-avro"], "--format debezium-avro needs --registry URL"),
        (["kafka://b:1/t", "--format", "avro", "--registry", "r"], "Address of the schema registry is invalid"),
        (["in", "--truncate", "ignore"], "--truncate applies only to a Kafka topic"),
        (["in", "--setting", "a=b"], "--setting applies only to a Kafka topic"),
        (["in", "--moves", "v"], "--moves applies only to a table"),
        (["kafka://b:1/t", "--hold", "x"], "--hold applies only to a table"),
        (["in"], "does not exist"),
    ],
)
def test_an_argument_about_another_kind_of_source_is_refused(
    table: hoodoo.Table, run: Any, arguments: list[str], said: str
) -> None:
    source, *more = arguments
    code, _, err = run("ingest", source, table.path, "--once", *more)
    assert code == 1 and said in err


def test_what_is_secret_comes_from_a_file(table: hoodoo.Table, run: Any, tmp_path: Path) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text("# ours\n\nsasl.password = a=b\nsocket.timeout.ms=10\nnonsense\n")
    code, _, err = run("ingest", "kafka://b:1/t", table.path, "--settings-from", settings)
    assert code == 1 and "Setting 3 in" in err and "a=b" not in err


def test_who_asks_a_registry_is_said_by_the_environment(
    table: hoodoo.Table, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[tuple[object, ...]]()
    given = ("kafka://b:1/t", table.path, "--once", "--format", "avro", "--registry", "http://r")

    def ask(*who: object) -> Any:
        asked.append(who)
        raise hoodoo.errors.OptionError("No registry here.", option="registry")

    monkeypatch.setattr("hoodoo.cli.ingest.SchemaRegistry", ask)
    monkeypatch.delenv("HOODOO_REGISTRY_AUTH", raising=False)
    assert run("ingest", *given)[0] == 1
    monkeypatch.setenv("HOODOO_REGISTRY_AUTH", "ann:h:ush")
    code, out, err = run("ingest", *given)
    assert code == 1 and asked == [("http://r",), ("http://r", "ann", "h:ush")] and "ush" not in out + err


def test_a_table_follows_another_one(table: hoodoo.Table, machine: Any, run: Any, tmp_path: Path) -> None:
    copy = hoodoo.create(tmp_path / "copy", {"id": "bigint", "v": "string"}, key="id")
    table.upsert([{"id": 1, "v": "x"}, {"id": 2, "v": "y"}])
    assert machine("ingest", table.path, copy.path, "--once", "--hold", "copy")["rows"] == 2
    table.delete([{"id": 1}])
    assert machine("ingest", table.path, copy.path, "--once", "--hold", "copy")["waiting"] == 0
    assert copy.scan().to_arrow()["id"].to_pylist() == [2] and [one.name for one in table.consumers()] == ["copy"]
    code, _, err = run("ingest", table.path, copy.path, "--once", "--pattern", "*")
    assert code == 1 and "--pattern applies only to a folder of files" in err


def test_what_infer_prints_makes_a_table(landing: Path, tmp_path: Path, run: Any, machine: Any) -> None:
    put(landing, "a.jsonl", {"id": 1, "at": "2024-01-01T00:00:00Z", "note": None}, "broken")
    code, out, err = run("ingest", landing, "--infer", "--settle-seconds", "0")
    assert code == 0 and out.strip() == "id long, at timestamp, note string"
    assert "note" in err and "'decode': 1" in err
    path = str(tmp_path / "made")
    assert run("create", path, "--schema", out.strip(), "--key", "id")[0] == 0
    assert machine("ingest", landing, path, *NOW, "--max-bad-share", "1")["rows"] == 2
    said = machine("ingest", landing, "--infer", "--settle-seconds", "0")
    assert said == {"schema": out.strip(), "rows": 1, "guessed": ["note"], "bad": {"decode": 1}}
    code, _, err = run("ingest", landing, path, "--infer")
    assert code == 1 and "Leave out PATH" in err


@pytest.mark.parametrize("other", [("--reset", "earliest", "--expect-number", "0"), ("--infer",), ("--continue", "x")])
def test_two_tasks_in_one_command_are_refused(landing: Path, table: hoodoo.Table, run: Any, other: Any) -> None:
    """Reset was dropped without a word."""
    put(landing, "a.jsonl", {"id": 1})
    code, _, error = run("ingest", landing, table.path, "--check", *other, "--settle-seconds", "0")
    assert code == 1 and "cannot be combined" in error and table.inspect.applications() == []


def test_a_check_of_lost_data_ends_as_the_job_would(landing: Path, table: hoodoo.Table, run: Any) -> None:
    put(landing, "a.jsonl", {"id": 1})
    assert run("ingest", landing, table.path, *NOW)[0] == 0
    put(landing, "a.jsonl", {"id": 1}, {"id": 2})
    code, _, error = run("ingest", landing, table.path, "--check", "--settle-seconds", "0")
    assert (code, run("ingest", landing, table.path, *NOW)[0]) == (4, 4) and "--on-change again" in error
