"""Commands `hoodoo info` and `hoodoo options`, which describe a table."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from hoodoo.cli.show import CommandOutput
from hoodoo.errors import OptionError, UnsupportedTable
from hoodoo.redact import printable
from hoodoo.table import Table
from hoodoo.timeline.properties.table_options import Options


def describe_table(table: Table) -> dict[str, Any]:
    """Describe a table by name, key, columns and options."""
    return {
        "path": table.path,
        "name": table.name,
        "type": table.type,
        "key": list(table.key),
        "partition_by": list(table.partition_by),
        "transforms": {name: str(one) for name, one in table.inspect.transforms.items()},
        "order_by": list(table.order_by),
        "columns": {field.name: str(field.type) for field in table.schema},
        "original_names": table.inspect.original_names,
        "checks": table.checks,
        "cursor": str(table.cursor),
    }


def info(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    scan = table.scan()
    with out.working("counting rows"):
        rows = scan.count()
    totals, commits = table.handle.history.view(scan.cursor.seq).totals, table.history(1)
    fields = {
        **describe_table(table),
        "rows": rows,
        "bytes": totals.base_bytes + totals.log_bytes,
        "file_groups": totals.groups,
        "logs": totals.logs,
        "slot": scan.cursor.seq,
        "newest_commit": f"{commits[0].operation} {commits[0].completed:%Y-%m-%d %H:%M:%SZ}" if commits else None,
        "options": {name: value for name, value in asdict(table.options).items() if value != getattr(Options(), name)},
    }
    if out.machine:
        out.document({**fields, "services": _service_advice(table)})
        return
    out.document({name: value for name, value in fields.items() if value not in ({}, [], None)}, "info")
    for text in _service_advice(table) or ["Nothing is due."]:
        out.say(text)


def _service_advice(table: Table) -> list[str]:
    try:
        return list(table.maintenance.services().advice)
    except UnsupportedTable as problem:
        return [problem.message]


def options(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    named = [name for name, _ in given.settings]
    if twice := next((name for name in named if named.count(name) > 1), None):
        raise OptionError(f"Option {printable(twice)} is given twice. Give it once.", option=twice)
    if named:
        table.set_options(**dict(given.settings))
    values, defaults = asdict(table.options), asdict(Options())
    shown = named or list(values)
    if out.machine:
        out.document({name: values[name] for name in shown})
        return
    out.listing(
        [
            {"option": name, "value": _option_text(values[name]), "default": _option_text(defaults[name])}
            for name in shown
        ]
    )


def _option_text(value: Any) -> str:
    return "none" if value is None else f"{value:.15g}" if isinstance(value, float) else str(value)
