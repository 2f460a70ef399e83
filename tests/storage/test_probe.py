"""The probe refuses every store that breaks a promise, takes a disk and a real S3 server, and is asked again by each
process that writes there.
"""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

import bad_stores
import pyarrow as pa
import pytest
import seaweed
from faulty_store import FaultyStore
from figures import record

import hoodoo
from hoodoo.compactor.cleaning.sweep import remove_orphan_files
from hoodoo.readers.predicate import duckdb_engine
from hoodoo.storage import mounts, probe
from hoodoo.storage.local import LocalStore
from hoodoo.storage.s3 import S3Store

pytestmark = pytest.mark.xdist_group("s3")  # one server, so one worker
SCHEMA = pa.schema([("id", pa.string())])
ROUNDS = 5  # a race is only found by chance: it must be found every time


@pytest.mark.parametrize("kind", bad_stores.ALL)
def test_a_store_that_cannot_carry_commits_is_refused(tmp_path: Path, kind: type[LocalStore]) -> None:
    for number in range(ROUNDS):
        with pytest.raises(hoodoo.StoreRefused, match="fails the check"):
            probe.require_safe_store(kind(tmp_path / str(number)))
    record(f"T4c {kind.__name__}", refused=ROUNDS, of=ROUNDS)


@pytest.mark.parametrize("kind", [bad_stores.Overwrites, bad_stores.KeepsQuietly, bad_stores.RefusesAndOverwrites])
def test_what_keeps_two_writers_apart_is_seen_by_the_brief_probe_too(tmp_path: Path, kind: type[LocalStore]) -> None:
    assert not all(check.passed for check in probe.probe_store(kind(tmp_path / "t"), briefly=True))


def test_a_disk_and_a_real_server_pass_and_nothing_is_left(tmp_path: Path, s3: dict[str, Any]) -> None:
    for name, store in (
        ("disk", LocalStore(tmp_path / "t")),
        ("SeaweedFS", S3Store(seaweed.place(), s3)),
    ):
        taken = []
        for _ in range(3):
            began = time.monotonic()
            assert [check.name for check in probe.probe_store(store) if not check.passed] == []
            taken.append(time.monotonic() - began)
        assert list(store.list("")) == []
        record(f"T4c {name}", accepted=3, of=3, seconds=round(min(taken), 3))


def test_a_refusal_leaves_nothing_behind_where_a_delete_deletes(tmp_path: Path) -> None:
    store = bad_stores.ChecksThenPuts(tmp_path / "t")
    assert not all(check.passed for check in probe.probe_store(store))
    assert list(store.list("")) == []


@pytest.mark.parametrize("how", ["lost", "lost after"])
def test_a_lost_answer_is_no_verdict(tmp_path: Path, how: str) -> None:
    """Every operation in turn loses its request or its reply: the disk behind is as good as before."""
    number, reached = 0, True
    while reached:
        number += 1
        store = FaultyStore(str(tmp_path / str(number)))
        store.counted = ("put_if_absent", "put", "get", "delete", "list")
        store.fault = lambda n, *_, at=number: how if n == at else None
        probe.require_safe_store(store, briefly=True)
        reached = store.count > number
    assert number > 8


def test_a_store_that_answers_nothing_gets_no_verdict(tmp_path: Path) -> None:
    silent = FaultyStore(str(tmp_path / "silent"))
    silent.fault = lambda *_: "lost"
    with pytest.raises(hoodoo.StoreUnavailable):
        probe.require_safe_store(silent)


def test_a_second_table_on_a_file_system_is_probed_briefly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each `create` raced threads and wrote megabytes, on a disk that had just passed."""
    probed, real = list[bool](), probe.probe_store
    monkeypatch.setattr(probe, "_conforming", set[str]())
    monkeypatch.setattr(
        probe, "probe_store", lambda store, briefly=False: probed.append(briefly) or real(store, briefly)
    )
    for name in ("first", "second", "third"):
        hoodoo.create(tmp_path / name, SCHEMA, key="id")
    assert probed == [False, True, True]


def test_no_table_is_created_on_a_store_that_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_conforming", set[str]())
    monkeypatch.setattr(LocalStore, "put_if_absent", bad_stores.ChecksThenPuts.put_if_absent)
    with pytest.raises(hoodoo.StoreRefused, match="exactly one wins"):
        hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    with pytest.raises(hoodoo.TableNotFound):
        hoodoo.open(tmp_path / "t")


# ---- asked again by writers
def test_a_process_asks_a_server_once_before_its_first_write_and_readers_never_do(
    s3: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{seaweed.place()}/t"
    hoodoo.create(path, SCHEMA, key="id", storage=s3).upsert(pa.table({"id": ["a"]}))
    asked: list[str] = []
    real = probe.probe_store
    monkeypatch.setattr(
        probe, "probe_store", lambda store, briefly=False: asked.append(store.uri) or real(store, briefly)
    )
    probe._conforming.clear()  # as in a new process
    table = hoodoo.open(path, storage=s3)
    assert table.scan().count() == 1 and asked == []
    table.upsert(pa.table({"id": ["b"]}))
    hoodoo.open(path, storage=s3).upsert(pa.table({"id": ["c"]}))
    assert asked == [path]


def test_a_server_that_went_bad_since_the_table_was_created_gets_no_further_commit(
    s3: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{seaweed.place()}/t"
    table = hoodoo.create(path, SCHEMA, key="id", storage=s3)
    probe._conforming.clear()
    monkeypatch.setattr(S3Store, "put_if_absent", lambda self, key, data, durable=True: self.put(key, data))
    with pytest.raises(hoodoo.StoreRefused):
        table.upsert(pa.table({"id": ["a"]}))
    assert table.cursor.seq == 1


def test_a_disk_is_asked_when_a_table_is_created_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    probe._conforming.clear()
    monkeypatch.setattr(probe, "probe_store", lambda *_: 1 / 0)
    assert table.upsert(pa.table({"id": ["a"]})).inserted == 1


def test_what_a_killed_probe_left_is_swept(tmp_path: Path) -> None:
    table = hoodoo.create(tmp_path / "t", SCHEMA, key="id")
    table.handle.store.put(f"{probe.PROBES}dead/b", b"first")
    assert table.maintenance.sweep(older_than_hours=1).files == 0
    assert remove_orphan_files(table.handle.context().timeline, -1).files == 1  # as if an hour had passed
    assert not table.handle.store.exists(f"{probe.PROBES}dead/b")


# ---- network file systems
MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 22 0:27 / /proc rw,nosuid - proc proc rw
40 22 0:35 / /mnt/share rw,relatime shared:20 - nfs4 10.0.0.2:/export rw,vers=4.2
41 22 0:36 / /mnt/share\\040two rw - cifs //host/x rw
42 40 254:1 / /mnt/share/local rw master:3 propagate_from:1 - xfs /dev/vdb rw
43 22 0:37 / /mnt/over rw - ext4 /dev/vdc rw
44 22 0:38 / /mnt/over rw - fuse.sshfs me@host: rw
45 22 0:39 / /mnt/fuse rw - fuse.bindfs /home rw
this line is not one of them
"""


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    monkeypatch.setattr(mounts, "MOUNTINFO", str(tmp_path / "mountinfo"))


@pytest.mark.usefixtures("mounted")
@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/mnt/share", "nfs4"),
        ("/mnt/share/a/b", "nfs4"),
        ("/mnt/share two/t", "cifs"),
        ("/mnt/over/t", "fuse.sshfs"),
        ("/mnt/shared", ""),
        ("/mnt/share/local/t", ""),
        ("/mnt/fuse/t", ""),
        ("/home/me/t", ""),
        ("/", ""),
    ],
)
def test_the_mount_nearest_above_a_path_decides_whether_it_is_on_a_network(path: str, kind: str) -> None:
    assert mounts.detect_network_file_system(path) == kind


@pytest.mark.usefixtures("mounted")
def test_a_network_file_system_is_refused_unless_asked_for() -> None:
    for call in (
        lambda: hoodoo.open("/mnt/share/t"),
        lambda: hoodoo.create("/mnt/share/t", SCHEMA, key="id"),
        lambda: LocalStore("file:///mnt/over/t"),
    ):
        with pytest.raises(hoodoo.StoreRefused, match="allow_network_fs"):
            call()
    with pytest.raises(hoodoo.TableNotFound):
        hoodoo.open("/mnt/share/t", storage={"allow_network_fs": True})
    with pytest.raises(hoodoo.OptionError, match="expected allow_network_fs"):
        hoodoo.open("/home/t", storage={"endpoint": "x"})


def test_a_link_onto_a_network_file_system_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "mountinfo").write_text(f"1 0 1:1 / / rw - ext4 x rw\n2 1 1:2 / {tmp_path}/far rw - ceph x rw\n")
    (tmp_path / "near").symlink_to(tmp_path / "far")
    monkeypatch.setattr(mounts, "MOUNTINFO", str(tmp_path / "mountinfo"))
    with pytest.raises(hoodoo.StoreRefused, match="ceph"):
        LocalStore(tmp_path / "near/t")


@pytest.mark.usefixtures("mounted")
def test_the_permission_travels_with_the_store() -> None:
    assert pickle.loads(pickle.dumps(LocalStore("/mnt/share/t", {"allow_network_fs": True}))).root == "/mnt/share/t"


def test_where_mounts_cannot_be_known_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "MOUNTINFO", "/no/such/file")
    assert mounts.detect_network_file_system("/mnt/share") == ""


def test_a_full_disk_is_named_when_a_table_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put, full = LocalStore.put_if_absent, hoodoo.StoreFull("The disk is full.", path=str(tmp_path))

    def refuse_races(self: LocalStore, key: str, *more: Any) -> Any:
        if "race" in key:
            raise full
        return put(self, key, *more)

    monkeypatch.setattr(probe, "_conforming", set[str]())
    monkeypatch.setattr(LocalStore, "put_if_absent", refuse_races)
    with pytest.raises(hoodoo.StoreFull):
        hoodoo.create(tmp_path / "t", pa.schema([("id", pa.int64())]), key="id")


def test_a_process_whose_working_folder_was_deleted_gets_errors_of_hoodoo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = hoodoo.create(tmp_path / "t", "id bigint, n bigint", key="id")
    table.insert([{"id": 1, "n": 1}])
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for call in (lambda: hoodoo.open("rel"), lambda: hoodoo.create("rel", table.schema, key="id")):
        with pytest.raises(hoodoo.OptionError, match="working directory of this process was deleted"):
            call()
    duckdb_engine._open_database.cache_clear()
    with pytest.raises(hoodoo.EngineError, match="cannot start"):
        table.update({"n": "n + 1"})
    monkeypatch.undo()
    assert table.update({"n": "n + 1"}).updated == 1
