"""Entries of exported tables in catalogs: real ones, each read back by pyiceberg; run by `make formats`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import catalog_servers
import iceberg_reader
import pyarrow as pa
import pytest
from exported_tables import make
from moto import mock_aws
from pyiceberg.catalog import Catalog, load_catalog

import hoodoo
from hoodoo.cli.main import main
from hoodoo.exports.catalogs import pointers

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("v", pa.int64())])


@pytest.fixture(scope="session")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with catalog_servers.rest_catalog(tmp_path_factory.mktemp("rest")) as uri:
        yield uri


@pytest.fixture(params=["sql", "glue", "hive", "rest"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """A catalog with the namespace `lake`, in which no table has been."""
    kind = request.param
    properties: dict[str, str] = {"type": kind, "warehouse": f"file://{tmp_path}/warehouse"}
    if kind == "sql":
        properties["uri"] = f"sqlite:///{tmp_path}/catalog.db"
    if kind == "glue":
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "x")
        properties["glue.region"] = "us-east-1"
    if kind in ("hive", "rest"):
        properties["uri"] = request.getfixturevalue(kind)
    if kind == "hive":
        properties["hive.hive2-compatible"] = "true"
    (tmp_path / "warehouse").mkdir()
    aws = mock_aws() if kind == "glue" else None
    if aws:
        aws.start()
    opened = load_catalog(f"of_{kind}", **properties)
    opened.create_namespace_if_not_exists("lake")
    for name in opened.list_tables("lake"):
        opened.drop_table(name)
    yield opened
    if aws:
        aws.stop()


def some(*numbers: int, v: int = 0) -> list[dict[str, Any]]:
    return [{"id": number, "part": "ab"[number % 2], "v": v} for number in numbers]


def seen(catalog: Catalog, table: str = "lake.rides") -> list[Any]:
    return in_order(catalog.load_table(table).scan().to_arrow())


def in_order(found: pa.Table) -> list[Any]:
    return sorted(found.to_pylist(), key=lambda row: row["id"])


def test_an_entry_is_created_and_follows_each_export(catalog: Catalog, tmp_path: Path) -> None:
    table = make(tmp_path / "t", SCHEMA)
    table.upsert(some(1, 2, 3))
    first = table.export(iceberg=True, register="lake.rides", catalog=catalog)
    assert first.catalog.change == "registered"
    assert seen(catalog) == in_order(table.scan().to_arrow())
    for turn in range(3):
        table.upsert(some(turn, 10 + turn, v=turn))
        moved = table.export(iceberg=True, register="lake.rides", catalog=catalog)
        assert moved.catalog.change == "moved"
        assert seen(catalog) == in_order(table.scan().to_arrow())
    again = table.export(iceberg=True, register="lake.rides", catalog=catalog)
    assert (again.catalog.change, again.iceberg.files) == ("kept", 0)
    assert len(catalog.load_table("lake.rides").metadata.snapshots) == 4


def test_an_entry_follows_columns_logs_and_a_clean(catalog: Catalog, tmp_path: Path) -> None:
    table = make(tmp_path / "t", SCHEMA, type="merge_on_read")
    how: dict[str, Any] = {"iceberg": True, "mode": "merged", "register": "lake.rides", "catalog": catalog}
    table.upsert(some(1, 2, 3, 4))
    table.export(**how)
    table.upsert(some(1, v=1))
    table.export(**how)
    table.alter.add_column("more", pa.string())
    table.alter.rename_column("v", "value", rewrite=True)
    table.upsert([{"id": 2, "part": "a", "value": 5, "more": "x"}])
    table.export(**how)
    assert seen(catalog) == in_order(table.scan().to_arrow())
    table.compact()
    table.upsert([{"id": 3, "part": "b", "value": 6, "more": "y"}])
    table.maintenance.clean(retain_hours=0, retain_commits=1)
    assert table.export(**how).catalog.change == "moved"
    assert seen(catalog) == in_order(table.scan().to_arrow())
    kept = len(iceberg_reader.metadata(tmp_path / "t")["snapshots"])
    assert len(catalog.load_table("lake.rides").metadata.snapshots) == kept


def test_an_entry_follows_a_table_that_was_exported_anew(catalog: Catalog, tmp_path: Path) -> None:
    table = make(tmp_path / "t", SCHEMA)
    table.upsert(some(1, 2))
    table.export(iceberg=True, register="lake.rides", catalog=catalog)
    table.upsert(some(2, 3, v=1))
    table.export(iceberg=True, rebuild=True, register="lake.rides", catalog=catalog)
    assert seen(catalog) == in_order(table.scan().to_arrow())


def test_an_entry_that_another_engine_changed_is_restored_by_the_next_export(catalog: Catalog, tmp_path: Path) -> None:
    """Trino's TRUNCATE and ALTER TABLE commit to the catalog, without changing hoodoo's metadata."""
    table = make(tmp_path / "t", SCHEMA)
    entry: dict[str, Any] = {"iceberg": True, "register": "lake.rides", "catalog": catalog}
    for number in range(2):
        table.upsert(some(number))
        table.export(**entry)
    newest = iceberg_reader.metadata(tmp_path / "t")
    older = newest | {"current-snapshot-id": newest["snapshots"][0]["snapshot-id"], "refs": {}}
    (tmp_path / "t/metadata/of_another_engine.metadata.json").write_text(json.dumps(older))
    location = f"{newest['location']}/metadata/of_another_engine.metadata.json"
    pointers.mover_of(catalog)(catalog, catalog.load_table("lake.rides"), older, location)
    assert len(seen(catalog)) == 1
    assert table.export(**entry).catalog.change == "moved"
    assert seen(catalog) == in_order(table.scan().to_arrow())
    assert table.export(**entry).catalog.change == "kept"


@pytest.mark.parametrize("version", [2, 3])
def test_an_entry_follows_a_table_to_version_3(catalog: Catalog, tmp_path: Path, version: int) -> None:
    """Snapshots from before and after the upgrade come to the catalog at once."""
    table = make(tmp_path / "t", SCHEMA, type="merge_on_read")
    how: dict[str, Any] = {"iceberg": True, "mode": "merged"}
    entry: dict[str, Any] = {"register": "lake.rides", "catalog": catalog}
    table.upsert(some(1, 2, 3, 4))
    table.export(**how, **entry, iceberg_version=version)
    table.upsert(some(1, v=1))
    table.export(**how)
    table.upsert(some(2, v=2))
    table.export(**how, iceberg_version=3)
    table.upsert(some(3, v=3))
    for _ in range(2):
        assert table.export(**how, **entry).catalog.change in ("moved", "kept")
        found = catalog.load_table("lake.rides").metadata
        ours = iceberg_reader.metadata(tmp_path / "t")
        assert (found.format_version, found.next_row_id) == (3, ours["next-row-id"])
        assert [one.first_row_id for one in found.snapshots] == [one.get("first-row-id") for one in ours["snapshots"]]
        assert seen(catalog) == in_order(table.scan().to_arrow())
        table.delete([{"id": 4, "part": "a"}])
        table.export(**how, **entry, rebuild=True)
        assert seen(catalog) == in_order(table.scan().to_arrow())


def test_only_a_rest_catalog_refuses_a_table_that_goes_back_to_version_2(catalog: Catalog, tmp_path: Path) -> None:
    table = make(tmp_path / "t", SCHEMA)
    table.upsert(some(1, 2))
    how: dict[str, Any] = {"iceberg": True, "register": "lake.rides", "catalog": catalog}
    table.export(**how, iceberg_version=3)
    table.upsert(some(1, v=1))
    try:
        table.export(**how, iceberg_version=2, rebuild=True)
        assert "rest" not in catalog.name
    except hoodoo.CatalogRefused as refused:
        assert "rest" in catalog.name and "expected at most 2, got 3. Drop the entry" in str(refused)
        catalog.drop_table("lake.rides")
        table.export(**how)
    assert catalog.load_table("lake.rides").metadata.format_version == 2
    assert seen(catalog) == in_order(table.scan().to_arrow())


def test_an_entry_that_somebody_moves_meanwhile_is_not_put_back(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry was read before the other export moved it."""
    path = tmp_path / "t"
    table = make(path, SCHEMA)
    table.upsert(some(1, 2))
    table.export(iceberg=True, register="lake.rides", catalog=catalog)
    table.upsert(some(3))
    mover = pointers.mover_of(catalog)
    tried: list[str] = []

    def late(*given: Any) -> str:
        if not tried:
            tried.append("")
            other = hoodoo.open(path)
            other.upsert(some(4))
            other.export(iceberg=True, register="lake.rides", catalog=catalog)
        tried.append(mover(*given))
        return tried[-1]

    first: list[Callable[..., str]] = [late]
    monkeypatch.setattr("hoodoo.exports.catalogs.registration.mover_of", lambda one: first.pop() if first else mover)
    done = table.export(iceberg=True, register="lake.rides", catalog=catalog)
    assert tried == ["", ""] and done.catalog.change == "kept"
    assert seen(catalog) == in_order(hoodoo.open(path).scan().to_arrow())


def test_another_table_of_that_name_is_left_alone(catalog: Catalog, tmp_path: Path) -> None:
    for name in ("t", "u"):
        table = make(tmp_path / name, SCHEMA)
        table.upsert(some(1, 2) if name == "t" else some(9))
        if name == "t":
            table.export(iceberg=True, register="lake.rides", catalog=catalog)
    with pytest.raises(hoodoo.CatalogRefused, match="another table") as refused:
        table.export(iceberg=True, register="lake.rides", catalog=catalog)
    assert refused.value.details["identifier"] == "lake.rides"
    assert [row["id"] for row in seen(catalog)] == [1, 2]


def test_a_copy_leaves_the_entry_to_what_it_was_copied_from(catalog: Catalog, tmp_path: Path) -> None:
    """It took the entry, and the table itself did not get it back."""
    table = make(tmp_path / "t", SCHEMA)
    table.upsert(some(1, 2))
    table.export(iceberg=True, register="lake.rides", catalog=catalog)
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    copy = hoodoo.open(tmp_path / "copy")
    copy.upsert(some(3))
    with pytest.raises(hoodoo.CatalogRefused, match="is a copy"):
        copy.export(iceberg=True, register="lake.rides", catalog=catalog)
    assert [row["id"] for row in seen(catalog)] == [1, 2]
    assert copy.export(iceberg=True, register="lake.copy", catalog=catalog).catalog.change == "registered"
    table.upsert(some(4))
    assert table.export(iceberg=True, register="lake.rides", catalog=catalog).catalog.change == "moved"


def test_a_table_that_was_moved_says_what_to_do_with_its_entry(catalog: Catalog, tmp_path: Path) -> None:
    table = make(tmp_path / "t", SCHEMA)
    table.upsert(some(1, 2))
    table.export(iceberg=True, register="lake.rides", catalog=catalog)
    (tmp_path / "t").rename(tmp_path / "elsewhere")
    moved = hoodoo.open(tmp_path / "elsewhere")
    moved.upsert(some(3))
    try:
        moved.export(iceberg=True, register="lake.rides", catalog=catalog)
    except hoodoo.CatalogRefused as refused:
        assert "drop the entry" in str(refused)
        catalog.drop_table("lake.rides")
        moved.export(iceberg=True, register="lake.rides", catalog=catalog)
    assert seen(catalog) == in_order(moved.scan().to_arrow())


def test_a_namespace_that_there_is_not_is_named(catalog: Catalog, tmp_path: Path) -> None:
    table = make(tmp_path / "t", SCHEMA)
    table.upsert(some(1))
    with pytest.raises(hoodoo.CatalogRefused, match="Namespace 'nowhere' does not exist"):
        table.export(iceberg=True, register="nowhere.rides", catalog=catalog)
    assert not (tmp_path / "t/metadata").exists()


def test_the_command_registers_with_properties_of_the_catalog(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make(path, SCHEMA)
    table.upsert(some(1, 2))
    uri = f"sqlite:///{tmp_path}/catalog.db"
    catalog = load_catalog("lake", type="sql", uri=uri)
    catalog.create_namespace("lake")
    how = ["--register", "lake.rides", "--catalog", "lake"]
    properties = ["--catalog-property", "type=sql", "--catalog-property", f"uri={uri}"]
    assert main(["export", str(path), "--iceberg", *how, *properties]) == 0
    assert seen(catalog) == in_order(table.scan().to_arrow())
    assert main(["export", str(path), "--iceberg", *how, "--catalog-property", "type"]) == 2


def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = make(tmp_path / "t", SCHEMA)
    for how, said in (
        ({"delta": True, "register": "a.b"}, "iceberg=True"),
        ({"iceberg": True, "register": "rides"}, "namespace.table"),
        ({"iceberg": True, "register": "a.b", "catalog": 7}, "expected a pyiceberg catalog"),
        ({"iceberg": True, "register": "a.b", "catalog": "unknown to pyiceberg"}, "cannot open the catalog"),
        ({"iceberg": True, "register": "a.b", "catalog_properties": "type=sql"}, "names and values"),
        ({"iceberg": True, "catalog": "default"}, "needs the name of an entry"),
        ({"iceberg": True, "catalog_properties": {"type": "sql"}}, "needs the name of an entry"),
    ):
        with pytest.raises(hoodoo.OptionError, match=said):
            table.export(**how)
    assert not (tmp_path / "t/metadata").exists() and not os.path.exists(tmp_path / "t/_delta_log")
