"""Pages of the documentation site that are generated from the code.

MkDocs runs this module by its plugin gen-files. `pages()` returns the pages, so that tests can check them.
"""

from __future__ import annotations

import argparse
import ast
import re
from pathlib import Path

import hoodoo
from hoodoo import errors
from hoodoo.cli.main import parser
from hoodoo.cli.overview import GROUPS
from hoodoo.compactor.status.metrics import TableCollector
from hoodoo.ingestion.metrics import JobCollector

ROOT = Path(__file__).parents[1]
NAMESPACES = {
    "table.alter": "hoodoo.table.altering.Alter",
    "table.inspect": "hoodoo.table.inspecting.Inspect",
    "table.maintenance": "hoodoo.table.maintenance.Maintenance",
    "table.savepoints": "hoodoo.table.savepoints.Savepoints",
    "table.quarantine()": "hoodoo.table.quarantine.quarantine.Quarantine",
}
"""Namespaces of a table, by the expression that returns the namespace."""
RESULTS = ("Changes", "IncrementalRows", "Merge", "Pin", "Consumer", "Sink", "Job", "IngestReport", "Services")
"""Types of `hoodoo.types` whose methods users call."""
EXAMPLES = {
    "orders.py": "Orders of a shop",
    "orders.sh": "Orders on the command line",
    "postgres_to_lake/recorded.py": "Change data capture from PostgreSQL",
    "medallion.py": "A cleaned copy with Spark streaming",
    "year_of_columns.py": "A year of schema changes",
    "one_table_every_engine.py": "One table for every engine",
    "topic_on_spark.py": "A Kafka topic with Spark",
    "hoodoo-worker.service": "Workers on systemd",
    "kubernetes-worker.yaml": "Workers on Kubernetes",
    "monitoring/alerts.yaml": "Alert rules",
}
"""Titles of the example pages, by file."""


def pages() -> dict[str, str]:
    """Return the generated pages by path."""
    return {
        "index.md": _home(),
        **{f"reference/{name}.md": text for name, text in _python().items()},
        "reference/command-line.md": _command_line(),
        "reference/options.md": "# Table options\n\n::: hoodoo.Options\n",
        "reference/metrics.md": _metrics(),
        "reference/changelog.md": (ROOT / "CHANGELOG.md").read_text(),
        **{f"examples/{Path(file).stem}-{Path(file).suffix[1:]}.md": _example(file) for file in EXAMPLES},
    }


def _home() -> str:
    # Links to files outside of docs/ have no page on the site.
    text = (ROOT / "README.md").read_text().replace("](docs/", "](")
    return re.sub(r"\[([^]]+)\]\((?:examples/[^)]+|[A-Z]+\.md)\)", r"\1", text)


def _python() -> dict[str, str]:
    names = [name for name in hoodoo.__all__ if not hasattr(errors, name) and name != "sources"]
    functions = sorted(name for name in names if name[0].islower())
    classes = sorted(name for name in names if name[0].isupper() and name not in ("Table", "Options"))
    sources = sorted(name for name in hoodoo.sources.__all__ if name[0].isupper())
    return {
        "functions": _members("Functions", [f"hoodoo.{name}" for name in functions]),
        "table": _members("Table", ["hoodoo.Table"]),
        "table-namespaces": _members("Table namespaces", list(NAMESPACES.values()), list(NAMESPACES)),
        "results": _members(
            "Readers and results", [f"hoodoo.types.{name}" for name in RESULTS] + [f"hoodoo.{name}" for name in classes]
        ),
        "sources": _members("Sources", [f"hoodoo.sources.{name}" for name in sources]),
        "errors": _members("Errors", [f"hoodoo.errors.{name}" for name in _errors()]),
    }


def _members(title: str, paths: list[str], headings: list[str] | None = None) -> str:
    level = 2 if headings is None else 3
    parts = [f"::: {path}\n    options:\n      heading_level: {level}" for path in paths]
    if headings is not None:
        parts = [f"## `{heading}`\n\n{part}" for heading, part in zip(headings, parts, strict=True)]
    return "\n\n".join([f"# {title}", *parts]) + "\n"


def _errors() -> list[str]:
    return [name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)]


def _command_line() -> str:
    [commands] = (one for one in parser()._actions if isinstance(one, argparse._SubParsersAction))
    parts = ["# Command line", "Every command accepts `--help` and `--json`."]
    for group, names in GROUPS.items():
        parts.append(f"## {group}")
        for name in names:
            parts += [f"### hoodoo {name}", f"```text\n{commands.choices[name].format_help().rstrip()}\n```"]
    return "\n\n".join(parts) + "\n"


def _metrics() -> str:
    lines = [
        "# Metrics",
        "",
        "`--metrics-port` of `hoodoo worker` and `hoodoo ingest` serves these metrics to Prometheus.",
    ]
    lines += ["`examples/monitoring/` has alert rules and a Grafana dashboard.", ""]
    for title, collector in (("Worker", TableCollector([])), ("Ingestion jobs", JobCollector([]))):
        lines += [f"## {title}", "", "| Metric | Kind | Meaning |", "| --- | --- | --- |"]
        for family in collector.collect():
            suffix = "_total" if family.type == "counter" else ""
            lines.append(f"| `{family.name}{suffix}` | {family.type} | {family.documentation} |")
        lines.append("")
    return "\n".join(lines)


def _example(file: str) -> str:
    text = (ROOT / "examples" / file).read_text()
    language = {".py": "python", ".sh": "bash", ".yaml": "yaml"}.get(Path(file).suffix, "ini")
    about, code = "", text
    if language == "python":
        about = ast.get_docstring(ast.parse(text)) or ""
        code = text.split('"""', 2)[2].lstrip()
    return f"# {EXAMPLES[file]}\n\nThe file is `examples/{file}`. {about}\n\n```{language}\n{code.rstrip()}\n```\n"


if __name__ == "<run_path>":  # gen-files runs this module
    import mkdocs_gen_files

    for path, text in pages().items():
        with mkdocs_gen_files.open(path, "w") as file:
            file.write(text)
