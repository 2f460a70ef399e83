"""Output that shows results to people or as JSON.

The output contains no control characters from user data: tables escape them, and JSON is ASCII. Secrets are redacted.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

import pyarrow as pa
from rich.table import Table
from rich.text import Text

from hoodoo.cli.files import convert_to_python, format_json, format_json_lines
from hoodoo.redact import redact
from hoodoo.terminal import CELL, create_console, format_cell, format_data_cell, format_value

_ALIGNED = 1_000  # number of rows that determine the column widths of piped output

ROWS_SHOWN = 20
"""Number of rows that a terminal shows without --limit."""


class CommandOutput:
    """Output of a command, for people or as JSON.

    Attributes:
        machine: True (`--json`) writes only JSON to stdout.
    """

    def __init__(self, machine: bool) -> None:
        self.machine = machine

    @property
    def piped(self) -> bool:
        return not sys.stdout.isatty()

    @property
    def is_text_at_terminal(self) -> bool:
        return not self.machine and sys.stderr.isatty()

    def document(self, fields: Mapping[str, Any], title: str = "") -> None:
        """Print a single result."""
        if self.machine:
            print(format_json(dict(fields)))
            return
        grid = Table.grid(padding=(0, 2))
        for name, value in _flat(fields):
            grid.add_row(Text(format_value(name), style="bold"), Text(_plain_number(name, value)))
        if title:
            create_console().print(Text(title, style="bold green"))
        create_console().print(grid)

    def listing(
        self,
        rows: Sequence[Mapping[str, Any]],
        columns: Sequence[str] | None = None,
        one_line: str = "",
        wide: bool = False,
    ) -> None:
        """Print a list of results.

        Args:
            rows: The results, as fields by name.
            columns: The fields to show in the table. None (default): all fields. JSON contains all fields.
            one_line: The column to truncate on a narrow terminal, so that each result takes one line.
            wide: True never truncates or wraps values.
        """
        if self.machine:
            for row in rows:
                print(format_json(dict(row)))
            return
        names = list(columns or (rows[0] if rows else ()))
        self.grid(
            names,
            ([_plain_number(name, row[name]) for name in names] for row in rows),
            [rows[0][name] for name in names] if rows else [],
            one_line,
            wide,
        )

    def rows(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        """Print rows, and return their number."""
        if self.machine:
            shown = 0
            for batch in batches:
                sys.stdout.writelines(f"{line}\n" for line in format_json_lines(batch))
                shown += len(batch)
            return shown
        shown, cut = 0, 0 if self.piped else CELL

        def values(batch: pa.RecordBatch) -> list[Any]:
            return convert_to_python(batch, lambda: [column.to_pylist() for column in batch.columns])

        def lines() -> Iterator[list[str]]:
            nonlocal shown
            for batch in batches:
                shown += len(batch)
                yield from ([format_data_cell(value, cut) for value in row] for row in zip(*values(batch), strict=True))

        self.grid(schema.names, lines(), schema.types)
        return shown

    def grid(
        self,
        names: Sequence[str],
        rows: Iterable[Sequence[str]],
        kinds: Sequence[Any],
        one_line: str = "",
        wide: bool = False,
    ) -> None:
        """Print formatted values as a table.

        Args:
            names: The column names.
            rows: The formatted values of each row.
            kinds: An Arrow type or a sample value for each column, to right-align numbers.
            one_line: As in `listing`.
            wide: As in `listing`.
        """
        if self.piped or wide:
            _plain_grid(names, rows, [_is_number(kind) for kind in kinds or [""] * len(names)])
            return
        table = Table(show_edge=False, pad_edge=False, header_style="bold")
        for name, kind in zip(names, kinds or [""] * len(names), strict=True):
            side: Any = "right" if _is_number(kind) else "left"
            if not one_line:
                table.add_column(Text(format_value(name, CELL)), justify=side, overflow="fold")
            elif name == one_line:  # only the column that may wrap gets narrower
                table.add_column(Text(format_value(name, CELL)), justify=side, overflow="ellipsis")
            else:
                table.add_column(Text(format_value(name, CELL)), justify=side, no_wrap=True)
        for row in rows:
            table.add_row(*(Text(text, no_wrap=True if one_line else None) for text in row))
        create_console().print(table)

    def note(self, text: str) -> None:
        """Print a remark in dim text.

        It is not printed with `--json`.
        """
        if not self.machine:
            create_console().print(Text(format_value(text), style="dim"))

    def say(self, text: str) -> None:
        """Print a sentence.

        It is not printed with `--json`.
        """
        if not self.machine:
            create_console().print(Text(format_value(text)), soft_wrap=True)

    @contextmanager
    def plan_progress(self) -> Iterator[Callable[[str, int, int], None]]:
        """Show the progress of compactions at a terminal.

        Yields:
            A function that updates the bar of a table. It takes the path of the table, the number of completed file
            groups, and their total number.
        """
        if self.machine or not sys.stderr.isatty():
            yield lambda path, done, groups: None
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        tasks: dict[str, Any] = {}
        with Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=create_console(error=True),
        ) as bars:

            def show(path: str, done: int, groups: int) -> None:
                if path not in tasks:
                    tasks[path] = bars.add_task(format_value(path, CELL), total=groups)
                bars.update(tasks[path], completed=done, total=groups, visible=done < groups)

            yield show

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Show a spinner at a terminal while a block runs."""
        if self.machine or not sys.stderr.isatty():
            yield
            return
        with create_console(error=True).status(Text(format_value(what))):
            yield

    @contextmanager
    def counting(self) -> Iterator[Callable[[str], None]]:
        """Show a line of text that can be updated while the block runs.

        Yields:
            A function that replaces the text.
        """
        if not self.is_text_at_terminal:
            yield lambda text: None
            return
        with create_console(error=True).status("") as status:
            yield lambda text: status.update(Text(format_value(text)))

    def failure(self, code: str, message: str) -> None:
        """Print an error to stderr."""
        if self.machine:
            print(json.dumps({"error": {"code": code, "message": redact(message)}}), file=sys.stderr)
        else:
            text = "\n".join(map(format_value, message.splitlines()))  # errors about `where` have several lines
            create_console(error=True).print(Text.assemble((f"{code}: ", "bold red"), text), soft_wrap=True)


def _plain_grid(names: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[bool]) -> None:
    """Print rows as aligned columns of plain text.

    Only the first rows determine the column widths, so memory use is bounded.
    """
    left = iter(rows)
    first = list(islice(left, _ALIGNED))
    heads = [format_value(name) for name in names]
    widths = [max([len(head), *(len(row[index]) for row in first)]) for index, head in enumerate(heads)]
    for row in chain([heads], first, left):
        cells = (
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(row, widths, right, strict=True)
        )
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, (list, tuple)):
            yield f"{prefix}{name}", ", ".join(map(str, value))
        else:
            yield f"{prefix}{name}", value


def _plain_number(name: str, value: Any) -> str:
    return (
        str(value)
        if name in ("slot", "min_readable")
        else format_cell(value)
        if not isinstance(value, str)
        else format_value(value)
    )


def _is_number(kind: Any) -> bool:
    if isinstance(kind, pa.DataType):
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
    return isinstance(kind, (int, float)) and not isinstance(kind, bool)


# ---- log records
class _Lines(logging.Formatter):
    """Log formatter that writes one line per record."""

    def format(self, entry: logging.LogRecord) -> str:
        return f"{_moment(entry)} {entry.levelname} {format_value(entry.getMessage())}"


class _JsonRecords(logging.Formatter):
    def format(self, entry: logging.LogRecord) -> str:
        fields = getattr(entry, "hoodoo", None) or {"event": "log", "message": redact(entry.getMessage())}
        return json.dumps({"time": _moment(entry), "level": entry.levelname.lower(), **fields})


def _moment(entry: logging.LogRecord) -> str:
    return (
        dt.datetime.fromtimestamp(entry.created, dt.timezone.utc)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def send_logs_to(stream: Any, level: int, machine: bool) -> None:
    """Send hoodoo's log records to a stream.

    Args:
        stream: The output stream.
        level: The minimum log level.
        machine: True writes each record as a JSON object, False as a line of text.
    """
    logger = logging.getLogger("hoodoo")
    for handler in list(logger.handlers):
        if isinstance(handler.formatter, (_Lines, _JsonRecords)):
            logger.removeHandler(handler)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_JsonRecords() if machine else _Lines())
    logger.addHandler(handler)
    logger.setLevel(level)
