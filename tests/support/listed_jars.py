"""Jars of servers in Java: exactly those that a list names, with the digests that it names.

Ivy fetches them, which PySpark brings, each by its own coordinates: what a project says that it needs is not followed.
Only a list that is made anew is what Ivy resolves for a version.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from java_program import ROOT, java


class NotFetched(Exception):
    """Jars could not be fetched, or are not those of their list."""


@dataclass(frozen=True, order=True)
class Jar:
    """File in a repository of Maven, with its coordinates and the digest of its bytes."""

    organisation: str
    name: str
    version: str
    classifier: str = ""
    sha256: str = ""

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}{'-' if self.classifier else ''}{self.classifier}.jar"


def _exact(jars: Iterable[Jar]) -> Iterator[str]:
    """Yield dependencies for Ivy on exactly the listed jars. Ivy ignores a second dependency on a module."""
    for (organisation, name, version), artifacts in groupby(
        sorted(jars), lambda jar: (jar.organisation, jar.name, jar.version)
    ):
        head = f'<dependency org="{organisation}" name="{name}" rev="{version}" conf="default->master"'
        yield f'{head} transitive="false">'
        for jar in artifacts:
            classifier = f' m:classifier="{jar.classifier}"' if jar.classifier else ""
            yield f'<artifact name="{name}" type="jar"{classifier}/>'
        yield "</dependency>"


def _transitive(jars: Iterable[Jar]) -> Iterator[str]:
    """Yield dependencies for Ivy on jars and on everything that their projects require."""
    for jar in jars:
        name = f'org="{jar.organisation}" name="{jar.name}" rev="{jar.version}"'
        yield f'<dependency {name} conf="default->master,runtime"/>'


_NAMESPACE = 'xmlns:m="http://ant.apache.org/ivy/maven"'
_LOGGER = Jar("org.slf4j", "slf4j-simple", "1.7.36")
"""Kafka brings none, and without one a server that does not start says nothing."""


@dataclass(frozen=True)
class JarList:
    """The jars of one program.

    Attributes:
        of: What the program is called.
        file: The list: a line for each jar, of its coordinates and its digest.
        folder: Where the jars lie.
        needed: What the list was resolved for, as 'organisation:name', all in one version.
    """

    of: str
    file: Path
    folder: Path
    needed: tuple[str, ...]

    def jars(self) -> list[Jar]:
        """What the list names."""
        lines = (line.split() for line in self.file.read_text().splitlines() if line and not line.startswith("#"))
        return [Jar(*coordinates.split(":"), sha256=sha256) for coordinates, sha256 in lines]

    def wrong(self, folder: Path | None = None) -> list[str]:
        """What a folder, or else that of the jars, does not have as it is listed: one line a file."""
        found = []
        for jar in self.jars():
            path = (folder or self.folder) / jar.file
            if not path.exists():
                found.append(f"{jar.file} is missing")
            elif (digest := _sha256(path)) != jar.sha256:
                found.append(f"{jar.file} has sha256 {digest}, and {self.file.name} names {jar.sha256}")
        return found

    def class_path(self) -> str:
        """The listed jars, always in the same order: an archive of classes is for one order."""
        return os.pathsep.join(str(self.folder.resolve() / jar.file) for jar in self.jars())

    def fetch(self) -> None:
        """Fetch what is missing or differs. Raises NotFetched where that does not bring what is listed."""
        if not self.wrong():
            return
        with tempfile.TemporaryDirectory() as scratch:
            self._retrieve(_exact(self.jars()), Path(scratch))
            if differ := self.wrong(Path(scratch)):
                raise NotFetched(f"Fetched jars of {self.of} are not those of the list:\n" + "\n".join(differ))
            shutil.rmtree(self.folder, ignore_errors=True)
            shutil.copytree(scratch, self.folder)

    def renew(self, version: str) -> None:
        """Write the list anew, of what Ivy resolves for a version. Raises NotFetched."""
        needed = [Jar(*one.split(":"), version) for one in self.needed]
        with tempfile.TemporaryDirectory() as scratch:
            pattern = "[organisation]/[revision]/[artifact]-[revision].[ext]"
            self._retrieve(_transitive((*needed, _LOGGER)), Path(scratch), pattern)
            found = sorted(
                Jar(path.parts[-3], path.stem.removesuffix(f"-{path.parts[-2]}"), path.parts[-2], sha256=_sha256(path))
                for path in Path(scratch).glob("*/*/*.jar")
            )
        head = [line for line in self.file.read_text().splitlines(keepends=True) if line.startswith("#")]
        lines = [f"{jar.organisation}:{jar.name}:{jar.version} {jar.sha256}\n" for jar in found]
        self.file.write_text("".join(head + lines))

    def _retrieve(
        self, dependencies: Iterable[str], folder: Path, pattern: str = "[artifact]-[revision](-[classifier]).[ext]"
    ) -> None:
        spark = importlib.util.find_spec("pyspark")
        if spark is None or not spark.submodule_search_locations:
            raise NotFetched(f"The jars of {self.of} are fetched by Ivy, which PySpark brings: run make venv.")
        ivy = next(Path(spark.submodule_search_locations[0], "jars").glob("ivy-*.jar"))
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as module:
            module.write(
                f'<ivy-module version="2.0" {_NAMESPACE}><info organisation="hoodoo" module="{self.folder.name}"/>'
            )
            module.write(f"<dependencies>{''.join(dependencies)}</dependencies></ivy-module>")
            module.flush()
            cache = ROOT / ".jars" / f"ivy-{self.folder.name}"
            command = [java(), "-jar", str(ivy), "-ivy", module.name, "-cache", str(cache)]
            command += ["-types", "jar", "bundle", "-retrieve", f"{folder}/{pattern}"]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise NotFetched(f"Ivy could not fetch the jars of {self.of}:\n{done.stdout[-4000:]}")


def run(jars: JarList, arguments: Sequence[str]) -> None:
    """Fetch what is not here, as a program; with a version make the list anew before."""
    try:
        if arguments:
            jars.renew(arguments[0])
        jars.fetch()
    except NotFetched as problem:
        sys.exit(str(problem))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
