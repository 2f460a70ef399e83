"""Reports of `hoodoo services` and `hoodoo verify` about tables."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from hoodoo.cli import quarantine
from hoodoo.cli.show import ROWS_SHOWN, CommandOutput
from hoodoo.compactor.status.advice import Services, amount, several, span
from hoodoo.errors import HoodooError
from hoodoo.redact import redact
from hoodoo.table import Table

_LAGS = 3
_NOTHING = "Nothing is due."


@dataclass(frozen=True)
class _Report:
    """Report of a command about one table.

    Attributes:
        code: The exit code.
        fields: The fields for JSON.
        cells: The values of the columns in a list of tables.
        details: Function that prints the text below the list.
    """

    code: int
    fields: dict[str, Any]
    cells: dict[str, Any]
    details: Callable[[], None]


def services(
    given: argparse.Namespace, out: CommandOutput, paths: Sequence[str], open_table: Callable[[str], Table]
) -> int:
    if len(paths) == 1:
        found = open_table(paths[0]).maintenance.services()
        if out.machine:
            out.document({"path": paths[0], **_service_fields(found)})
        else:
            out.document(_service_lines(found), "services")
            for text in found.advice or (_NOTHING,):
                out.say(text)
        return _LAGS if given.check and found.lags else 0

    def report(table: Table) -> _Report:
        found = table.maintenance.services()
        figures = found.figures
        cells = {
            "state": "lags" if found.lags else "ok",
            "file groups": figures.groups,
            "with logs": figures.groups_behind,
            "oldest log": span(figures.lag_seconds) if figures.groups_behind else "",
            "open plans": len(found.plans),
            "workers": len(found.workers) - len(found.dead),
            "cleanable": amount(figures.cleanable_bytes),
        }

        def details() -> None:
            for text in found.advice:
                out.say(f"{table.path}: {text}")

        return _Report(_LAGS if given.check and found.lags else 0, _service_fields(found), cells, details)

    return _reports(out, paths, open_table, report)


def _service_fields(found: Services) -> dict[str, Any]:
    fields = asdict(found)
    logs = fields["figures"].pop("logs")
    fields["figures"] |= {"logs_max": max(logs, default=0), "groups_behind": found.figures.groups_behind}
    return fields


def _service_lines(found: Services) -> dict[str, Any]:
    figures = found.figures
    lines = {
        "commits": f"{figures.commits:,}, newest slot {figures.head}, oldest readable slot {figures.min_readable}",
        "base files": f"{amount(figures.base_bytes)} in {several(figures.groups, 'file group')}, "
        f"{several(figures.small_files, 'small file')}",
        "logs": f"{amount(figures.log_bytes)} in {several(figures.groups_behind, 'file group')}, "
        f"at most {several(figures.logs_max, 'log')} in a file group",
        "oldest log": f"{span(figures.lag_seconds)} old, {several(figures.lag_commits, 'commit')}"
        if figures.groups_behind
        else "none",
        "reads": f"{figures.read_amplification:.2f} bytes per byte of base files",
        "writers wait": "yes, because a file group has too many logs" if figures.backpressure else "no",
        "plans": ", ".join(f"{count:,} {state}" for state, count in figures.plans.items()),
        "cleanable": f"{amount(figures.cleanable_bytes)} in files that no snapshot within retention needs",
    }
    for format, lag in figures.exports.items():
        lines[f"export {format}"] = f"{several(lag.slots, 'commit')} behind, {span(lag.seconds)}"
    for instant, age in found.plan_ages.items():
        owner = found.owners[instant]
        lines[f"plan {instant}"] = f"{span(age)} old, {f'run by {owner}' if owner else 'not running'}"
    for name, age in found.workers.items():
        lines[f"worker {name}"] = f"{'dead, ' * (name in found.dead)}heartbeat {span(age)} ago"
    for holder, size in found.held.items():
        lines[f"kept for {holder}"] = amount(size)
    return lines


def verify(
    given: argparse.Namespace, out: CommandOutput, paths: Sequence[str], open_table: Callable[[str], Table]
) -> int:
    def report(table: Table) -> _Report:
        with out.working(f"reading all files of {table.path}"):
            result = table.verify()
            problems = [asdict(problem) for problem in (*result.problems, *quarantine.verified(table))]
            repeated = table.inspect.duplicates() if given.duplicates and result.ok else None
        counts = {name: value for name, value in asdict(result).items() if name != "problems"}
        if repeated is not None:
            counts["duplicates"] = len(repeated)

        def details() -> None:
            if problems:
                out.listing(problems)
            if given.duplicates and repeated is None:
                out.say("Keys with several rows were not searched, because the table is damaged.")
            if repeated:
                out.rows(repeated.schema, repeated.slice(0, ROWS_SHOWN).to_batches())
                out.say("`hoodoo duplicates PATH` lists all keys with more than one row.")

        fields = {"ok": not problems, **counts}
        cells = {"state": "damaged" if problems else "ok", **counts, "problems": len(problems)}
        return _Report(int(bool(problems or repeated)), {**fields, "problems": problems}, cells, details)

    if len(paths) > 1:
        return _reports(out, paths, open_table, report)
    found = report(open_table(paths[0]))
    if out.machine:
        out.document({"path": paths[0], **found.fields})
    else:
        out.document({name: value for name, value in found.fields.items() if name != "problems"}, "verified")
        found.details()
    return found.code


def _reports(
    out: CommandOutput, paths: Sequence[str], open_table: Callable[[str], Table], report: Callable[[Table], _Report]
) -> int:
    """Print a line and the details of each table, and return the exit code.

    An error about a table is shown in its line. The exit code is then 1.
    """
    reports = list[_Report]()
    for path in paths:
        try:
            found = report(open_table(path))
        except HoodooError as problem:
            error = {"code": problem.code, "message": redact(problem.message)}
            found = _Report(
                1, {"error": error}, {"state": problem.code}, partial(out.say, f"{path}: {problem.message}")
            )
        reports.append(found)
        if out.machine:
            out.document({"path": path, **found.fields})
    if not out.machine:
        columns = list(dict.fromkeys(name for found in reports for name in found.cells))
        rows = [{name: found.cells.get(name, "") for name in columns} for found in reports]
        out.listing([{"path": path, **row} for path, row in zip(paths, rows, strict=True)], one_line="path")
        for found in reports:
            found.details()
    codes = [found.code for found in reports]
    return 1 if 1 in codes else max(codes)
