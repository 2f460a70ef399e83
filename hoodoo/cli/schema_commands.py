"""Commands `hoodoo schema` and `hoodoo alter`."""

from __future__ import annotations

import argparse
from typing import Any

import pyarrow as pa

import hoodoo
from hoodoo.cli.show import CommandOutput
from hoodoo.errors import OptionError
from hoodoo.format.column_text import parse_column_type
from hoodoo.redact import printable
from hoodoo.table import Table
from hoodoo.timeline.columns.alterations import Alteration
from hoodoo.timeline.columns.no_default import NO_DEFAULT


def schema(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    if given.history:
        listed = [
            {"schema": one.id, "slot": one.cursor.seq, "cursor": str(one.cursor), "changes": "; ".join(one.changes)}
            for one in table.inspect.schemas()
        ]
        out.listing(listed, ["schema", "slot", "cursor", "changes"])
        return
    columns = table.schema if given.at is None else table.inspect.schema_at(given.at)
    out.listing(
        [{"column": one.name, "type": str(one.type), "nullable": one.nullable} for one in columns],
        ["column", "type", "nullable"],
    )


def alter(given: argparse.Namespace, out: CommandOutput, table: Table) -> None:
    alterations = [] if given.change == "rewrite" else [_alteration(given)]
    with out.working(f"changing {given.name}" if alterations else "rewriting"):
        done = table.alter(alterations, rewrite=given.rewrite)
    fields: dict[str, Any] = {
        "instant": done.instant,
        "cursor": str(done.cursor),
        "groups": done.groups,
        "rows": done.rows,
        "bytes_written": done.bytes_written,
    }
    out.document(fields, "altered" if done.instant else "nothing to change")


def _alteration(given: argparse.Namespace) -> Alteration:
    match given.change:
        case "add":
            kind = parse_column_type(given.type, given.name)
            default = NO_DEFAULT if given.default is None else _default_value(given.default, kind, given.name)
            return hoodoo.AddColumn(given.name, kind, default, given.after, given.first)
        case "drop":
            return hoodoo.DropColumn(given.name)
        case "rename":
            return hoodoo.RenameColumn(given.name, given.to)
        case "widen":
            return hoodoo.WidenColumn(given.name, parse_column_type(given.type, given.name))
        case "retype":
            return hoodoo.RetypeColumn(given.name, parse_column_type(given.type, given.name))
        case "move":
            return hoodoo.MoveColumn(given.name, given.after, given.first)
    return hoodoo.MakeNullable(given.name)


def _default_value(text: str, kind: pa.DataType, column: str) -> object:
    if text == "null":
        return None
    try:
        return pa.scalar(text).cast(kind).as_py()
    except (pa.ArrowException, ValueError, OverflowError):
        raise OptionError(
            f"--default {printable(text)} is not a valid value for column {column!r} of type {kind}.", option="default"
        ) from None
