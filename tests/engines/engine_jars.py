"""Jars of the engines in Java that read exported tables. Run this module as a program to fetch missing jars."""

from __future__ import annotations

from pathlib import Path

from java_program import ROOT
from listed_jars import JarList, run


def _listed(engine: str) -> JarList:
    return JarList(engine, Path(__file__).with_name(f"{engine}_jars.txt"), ROOT / ".jars" / f"engine-{engine}", ())


if __name__ == "__main__":
    for engine in ("trino", "spark", "flink"):
        run(_listed(engine), ())
