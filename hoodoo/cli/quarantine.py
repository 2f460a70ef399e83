"""Command `hoodoo quarantine`."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace

from hoodoo.cli.show import CommandOutput
from hoodoo.errors import CallError, OptionError, TableNotFound
from hoodoo.readers.verify import Problem
from hoodoo.redact import printable
from hoodoo.table import Table


def run(given: argparse.Namespace, out: CommandOutput, table: Table) -> int:
    aside = table.quarantine()
    if given.action in ("show", "drop") and not given.positions:
        raise CallError(f"{given.action} needs a POSITION. `hoodoo quarantine list {given.path}` shows the positions.")
    _require_effect(given)
    if given.action == "list":
        found = aside.rows(None if given.state == "all" else given.state or "new").drop_columns(["payload"])
        out.rows(found.schema, found.to_batches())
    elif given.action == "show":
        for position in given.positions:
            row = aside.original(position)
            out.rows(row.schema, row.to_batches())
    elif given.action == "drop":
        there = set(aside.rows()["position"].to_pylist())
        if strange := [position for position in given.positions if position not in there]:
            raise OptionError(
                f"Position {printable(strange[0])} is not in the quarantine. No row was dropped. `hoodoo "
                f"quarantine list {given.path}` shows all positions.",
                option="position",
            )
        out.document({"dropped": aside.drop(given.positions)}, "dropped")
    else:
        with out.working("replaying rows"):
            done = aside.replay(
                overwrite=given.overwrite, missing=given.missing or "fail", time_unit=dict(given.time_unit or [])
            )
        out.document(asdict(done), "replayed")
        return int(done.bad > 0 or done.cut > 0)
    return 0


def _require_effect(given: argparse.Namespace) -> None:
    """Check that the action uses every given argument."""
    of_action = {"list": ("state",), "replay": ("overwrite", "missing", "time_unit")}.get(given.action, ("positions",))
    for name in ("positions", "state", "overwrite", "missing", "time_unit"):
        if getattr(given, name) and name not in of_action:
            shown = "a POSITION" if name == "positions" else f"--{name.replace('_', '-')}"
            raise CallError(f"{given.action} does not accept {shown}. Leave it out.", option=name)


def verified(table: Table) -> list[Problem]:
    """Verify the quarantine of a table.

    Returns an empty list for a table without a quarantine.
    """
    try:
        aside = table.quarantine().table
    except (OptionError, TableNotFound):  # a quarantine is impossible here, or does not exist yet
        return []
    return [replace(problem, file=f"{aside.path}/{problem.file}") for problem in aside.verify().problems]
