"""Jobs files, which define ingestion jobs in TOML.

    [[job]]
    source = "kafka://broker:9092/shop.orders"
    table = "lake/orders"
    format = "debezium-json"
    max_rows = 200000
    settings = { "security.protocol" = "SSL" }

Paths are relative to the working folder, as on the command line.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from hoodoo.cli import ingest_arguments
from hoodoo.cli.argument_types import NUMBERS
from hoodoo.cli.words import WordsParser
from hoodoo.errors import CallError
from hoodoo.nearest import find_nearest_name
from hoodoo.redact import printable

_NEEDED = ("source", "table")


class _Parser(WordsParser):
    """Argument parser that raises CallError for invalid arguments."""

    def error(self, message: str) -> NoReturn:
        raise CallError(message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise CallError((message or "").removeprefix(f"{self.prog}: error: ").partition(f"; {self.prog} --help")[0])


def read_jobs_file(given: argparse.Namespace) -> list[argparse.Namespace]:
    """Read a jobs file, and parse each job like a command line.

    Args:
        given: The parsed command line, whose `source` is the jobs file.

    Returns:
        The parsed arguments of each job, in the same form as a command line for that job.

    Raises:
        CallError: The file cannot be read, or has an invalid key or value.
    """
    file, parser = given.source, _Parser(prog="job", add_help=False, allow_abbrev=False)
    ingest_arguments.add_job_arguments(parser)
    if more := [name for name in vars(parser.parse_args([])) if getattr(given, name) != parser.get_default(name)]:
        raise CallError(
            f"--{more[0].replace('_', '-')} applies to a single job. Set it in {printable(file)}.", option=more[0]
        )
    try:
        with open(file, "rb") as content:
            said = tomllib.load(content)
    except (OSError, ValueError) as problem:
        raise CallError(f"Cannot read {printable(file)}: {problem}.", file=file) from None
    jobs = said.pop("job", [])
    if said or not isinstance(jobs, list) or not jobs or not all(isinstance(job, dict) for job in jobs):
        raise CallError(
            f"File {printable(file)} is not a valid jobs file. Start each job with [[job]], and remove keys outside of "
            "jobs.",
            file=file,
        )
    found = list[argparse.Namespace]()
    for number, job in enumerate(jobs, 1):
        try:
            found.append(_job(parser, job, given))
        except CallError as problem:
            raise CallError(f"Job {number} of {printable(file)}: {problem.message}", file=file, job=number) from None
    return found


def _job(parser: _Parser, job: Mapping[str, Any], given: argparse.Namespace) -> argparse.Namespace:
    for name in _NEEDED:
        if not isinstance(job.get(name), str):
            raise CallError(f'Key {name} is missing or not a string. Write {name} = "...".', option=name)
    flags = {flag[2:].replace("-", "_"): action for action in parser._actions for flag in action.option_strings}
    flags["settings"] = flags.pop("setting")
    more = {name: value for name, value in job.items() if name not in _NEEDED}
    if strange := [name for name in more if name not in flags]:
        close = find_nearest_name(strange[0], [*_NEEDED, *flags])
        hint = f" Did you mean {close!r}?" if close else ""
        raise CallError(f"{printable(strange[0])} is not a valid key of a job.{hint}", option=strange[0])
    words = [word for name, value in more.items() for word in _command_line_words(name, flags[name], value)]
    named = {"source": job["source"], "path": job["table"]}
    return argparse.Namespace(**{**vars(given), **vars(parser.parse_args(words)), **named})


def _command_line_words(name: str, action: argparse.Action, value: Any) -> Iterator[str]:
    flag = action.option_strings[0]
    if (wanted := NUMBERS.get(action.type)) and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise CallError(f"Key {name} must be {wanted}, got {printable(value)}.", option=name)
    if isinstance(value, dict):
        for key, one in value.items():
            yield f"{flag}={key}={_text(name, one)}"
    elif isinstance(value, list):
        yield f"{flag}={','.join(_text(name, one) for one in value)}"
    else:
        yield f"{flag}={_text(name, value)}"


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise CallError(f"Key {name} must be a string or a number, got {printable(value)}.", option=name)
    return str(value)


__all__ = ["read_jobs_file"]
