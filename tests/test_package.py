"""What is installed, and what is public: the wheel holds only hoodoo, links and lists agree, and the door is the one
documented.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import hoodoo

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
SNIPPET = """
import hoodoo, pyarrow as pa
table = hoodoo.create("t", pa.schema([("id", pa.int64())]), key="id")
table.upsert(pa.table({"id": [1, 2]}))
print(table.scan().count(), hoodoo.__file__)
"""


def test_folders_links_and_packages_agree() -> None:
    packages = [name.removeprefix("hoodoo.") for name in SETTINGS["packages"] if name != "hoodoo"]
    linked = sorted(name.removeprefix("hoodoo.") for name in SETTINGS["package-dir"] if name != "hoodoo")
    assert linked == sorted(path.name for path in (ROOT / "hoodoo").iterdir() if path.is_symlink())
    for name in linked:
        assert os.readlink(ROOT / "hoodoo" / name) == f"../{name}"
    paths = [name.replace(".", "/") for name in packages]
    homes = [path if path.split("/")[0] in linked else f"hoodoo/{path}" for path in paths]
    there = {path.parent for top in (*linked, "hoodoo") for path in (ROOT / top).rglob("__init__.py")}
    assert {ROOT / home for home in homes} | {ROOT / "hoodoo"} == there
    for home in homes:
        assert (ROOT / home / "__init__.py").read_text().startswith('"""')


pytestmark = pytest.mark.xdist_group("package")  # one worker builds the wheel: two would do it in each other's way


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, as two builds in one place, or what an earlier one left there, are in each other's way."""
    target = tmp_path_factory.mktemp("wheel")
    left_out = shutil.ignore_patterns(".*", "build", "dist", "tests", "bench", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, target / "source", symlinks=True, ignore=left_out)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(target),
        str(target / "source"),
    ]
    subprocess.run(command, check=True, cwd=target, capture_output=True)
    return next(target.glob("*.whl"))


def test_the_wheel_puts_only_hoodoo_into_site_packages(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"hoodoo"}
    for package, folder in SETTINGS["package-dir"].items():
        modules = {path.relative_to(ROOT / folder).as_posix() for path in (ROOT / folder).rglob("*.py")}
        assert {f"{package.replace('.', '/')}/{module}" for module in modules} <= set(names)


def test_the_wheel_has_its_licence_and_says_that_it_is_typed(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "hoodoo/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_installed_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env/bin/python"
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    assert sorted(
        path.name.split("-")[0] for path in Path(site).iterdir() if path.name not in ("bin", "__pycache__")
    ) == ["hoodoo", "hoodoo"]
    (Path(site) / "dependencies.pth").write_text(
        sysconfig.get_path("purelib") + "\n"
    )  # pyarrow and the others, as installed here
    done = subprocess.run([python, "-c", SNIPPET], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.split() == ["2", f"{site}/hoodoo/__init__.py"]


def test_every_public_name_is_there_and_documented() -> None:
    for name in hoodoo.__all__:
        assert getattr(hoodoo, name) is not None
    for name, member in vars(hoodoo.Table).items():
        if not name.startswith("_") and callable(member):
            assert member.__doc__, f"Table.{name} has no docstring"
    assert {"create", "open", "Table", "Cursor", "HoodooError"} <= set(hoodoo.__all__)
    with pytest.raises(AttributeError):
        hoodoo.nothing  # noqa: B018


def test_completion_shows_the_public_names_and_no_others() -> None:
    code = "import hoodoo; print([name for name in dir(hoodoo) if not name.startswith('__')] == sorted(hoodoo.__all__))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "True\n"


def test_importing_hoodoo_loads_neither_spark_nor_pandas_nor_boto3() -> None:
    code = (
        "import sys, hoodoo; hoodoo.create; print(sorted({'pyspark', 'pandas', 'boto3', 'sqlglot', 'polars', "
        "'duckdb'} & set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip() == "[]"
    )


_SERVICES = {"compactor.alter", "compactor.worker", "compactor.cleaning.clean", "compactor.clustering.cluster"}
_WRITES = {"writers.merging.merge", "writers.stored_rows", "writers.restore", "writers.adopt", "table.quarantine"}


@pytest.mark.parametrize(
    ("call", "unneeded"),
    [
        ("t.upsert(rows)", {"readers.scan", "readers.verify", "readers.changes.changes", "readers.predicate.sql"}),
        ("t.scan().to_arrow()", {"readers.verify", "readers.changes.changes", "compactor.compaction.plans"}),
    ],
)
def test_a_call_imports_nothing_that_only_other_calls_need(tmp_path: Path, call: str, unneeded: set[str]) -> None:
    """What a new process pays for its first call is mostly what it imports."""
    hoodoo.create(tmp_path / "t", {"id": "string", "n": "int64"}, key="id").insert([{"id": "a", "n": 1}])
    code = f"""
import sys, hoodoo, pyarrow as pa
t, rows = hoodoo.open("t"), pa.table({{"id": ["a", "b"], "n": [1, 2]}})
{call}
print(*sys.modules)
"""
    process = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    loaded = {name.removeprefix("hoodoo.") for name in process.stdout.split() if name.startswith("hoodoo.")}
    assert "table.table" in loaded
    assert not loaded & (unneeded | _SERVICES | _WRITES | {"spark", "engine.spark", "timeline.columns.alterations"})


def test_nothing_stored_is_pickled_evaluated_or_executed() -> None:
    """Pickles may travel between a driver and its Spark tasks (engine/) and nowhere else."""
    for folder in SETTINGS["package-dir"].values():
        for path in (ROOT / folder).glob("*.py"):
            text = path.read_text()
            for word in ("import pickle", "cloudpickle", "marshal", "eval(", "exec(", "yaml.load", "shelve"):
                fine = word.endswith("pickle") and folder == "engine" and path.name in ("spark.py", "task_pickling.py")
                assert word not in text or fine, f"{path} uses {word}"
