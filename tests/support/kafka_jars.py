"""The jars of Apache Kafka's broker, for tests: exactly those that a list names, with the digests that it names.

Ivy fetches them, which PySpark brings, each by its own coordinates: what a project says that it needs is not followed.
Run as a program it fetches what is not here; with a version of Kafka it makes the list anew from what Ivy resolves for
that version.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from java_program import ROOT, java

LIST = Path(__file__).with_name("kafka_jars.txt")
JARS = ROOT / ".jars" / "kafka"
_LOGGER = ("org.slf4j", "slf4j-simple", "1.7.36")
"""Kafka brings none, and without one a broker that does not start says nothing."""


@dataclass(frozen=True, order=True)
class Jar:
    """One file: its coordinates, and the digest of its bytes."""

    organisation: str
    name: str
    version: str
    sha256: str = ""

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}.jar"

    def dependency(self, transitive: bool = False) -> str:
        """What Ivy reads. Only of a jar that names others the kinds of files are left to its project."""
        head = f'<dependency org="{self.organisation}" name="{self.name}" rev="{self.version}"'
        if transitive:
            return f'{head} conf="default->master,runtime"/>'
        return (
            f'{head} conf="default->master" transitive="false"><artifact name="{self.name}" type="jar"/></dependency>'
        )


def listed() -> list[Jar]:
    """What the list names."""
    lines = (line.split() for line in LIST.read_text().splitlines() if line and not line.startswith("#"))
    return [Jar(*coordinates.split(":"), sha256) for coordinates, sha256 in lines]


def wrong(jars: Iterable[Jar], folder: Path = JARS) -> list[str]:
    """What a folder does not have as it is listed, one line a file."""
    found = []
    for jar in jars:
        path = folder / jar.file
        if not path.exists():
            found.append(f"{jar.file} is missing")
        elif (digest := _sha256(path)) != jar.sha256:
            found.append(f"{jar.file} has sha256 {digest}, and {LIST.name} names {jar.sha256}")
    return found


def class_path() -> str:
    """The listed jars, always in the same order: an archive of classes is for one order."""
    return os.pathsep.join(str(JARS.resolve() / jar.file) for jar in listed())


def fetch() -> None:
    """Fetch what is missing or differs. Ends the program where that does not bring what is listed."""
    jars = listed()
    if wrong(jars):
        with tempfile.TemporaryDirectory() as scratch:
            _retrieve((jar.dependency() for jar in jars), Path(scratch))
            if differ := wrong(jars, Path(scratch)):
                sys.exit("Fetched jars of Kafka are not those of the list:\n" + "\n".join(differ))
            shutil.rmtree(JARS, ignore_errors=True)
            shutil.copytree(scratch, JARS)


def resolved(version: str) -> list[Jar]:
    """What a version of Kafka needs, as Ivy finds it."""
    with tempfile.TemporaryDirectory() as scratch:
        needed = (Jar("org.apache.kafka", "kafka_2.13", version), Jar(*_LOGGER))
        pattern = "[organisation]/[revision]/[artifact]-[revision].[ext]"
        _retrieve((jar.dependency(transitive=True) for jar in needed), Path(scratch), pattern)
        return sorted(
            Jar(path.parts[-3], path.stem.removesuffix(f"-{path.parts[-2]}"), path.parts[-2], _sha256(path))
            for path in Path(scratch).glob("*/*/*.jar")
        )


def _retrieve(dependencies: Iterable[str], folder: Path, pattern: str = "[artifact]-[revision].[ext]") -> None:
    spark = importlib.util.find_spec("pyspark")
    assert spark and spark.submodule_search_locations
    ivy = next(Path(spark.submodule_search_locations[0], "jars").glob("ivy-*.jar"))
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as module:
        module.write('<ivy-module version="2.0"><info organisation="hoodoo" module="kafka"/><dependencies>')
        module.write("".join(dependencies) + "</dependencies></ivy-module>")
        module.flush()
        command = [java(), "-jar", str(ivy), "-ivy", module.name, "-cache", str(ROOT / ".jars" / "ivy-kafka")]
        command += ["-types", "jar", "bundle", "-retrieve", f"{folder}/{pattern}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"Ivy could not fetch the jars of Kafka:\n{done.stdout[-4000:]}")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        lines = [f"{jar.organisation}:{jar.name}:{jar.version} {jar.sha256}\n" for jar in resolved(sys.argv[1])]
        head = [line for line in LIST.read_text().splitlines(keepends=True) if line.startswith("#")]
        LIST.write_text("".join(head + lines))
    fetch()
