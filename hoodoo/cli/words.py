"""A parser of command lines that says which command, argument or value is meant by one that there is not.

Knows words only; which commands there are is in main.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

_COMMANDS = {
    **dict.fromkeys(("query", "select", "read", "show", "head", "cat", "count", "rows", "sql"), "scan"),
    **dict.fromkeys(("dump", "save", "to-csv", "to-parquet"), "scan PATH --output FILE"),
    **dict.fromkeys(("time-travel", "as-of"), "scan PATH --as-of POSITION"),
    **dict.fromkeys(("append", "write", "insert", "load", "import", "merge", "put"), "upsert"),
    **dict.fromkeys(("init", "new", "create-table"), "create"),
    **dict.fromkeys(("vacuum", "expire-snapshots"), "clean"),
    **dict.fromkeys(("remove-orphan-files", "gc"), "sweep"),
    **dict.fromkeys(("optimize", "compaction", "bin-pack"), "compact"),
    **dict.fromkeys(("zorder", "z-order", "sort", "clustering"), "cluster"),
    **dict.fromkeys(("describe", "detail", "details", "stats", "about", "summary"), "info"),
    **dict.fromkeys(("log", "commits", "snapshots", "versions"), "history"),
    **dict.fromkeys(("ls", "list", "partitions"), "files"),
    **dict.fromkeys(("cdf", "cdc", "table-changes"), "changes"),
    **dict.fromkeys(("follow", "tail"), "changes PATH --since POSITION"),
    **dict.fromkeys(("fsck", "check", "validate"), "verify"),
    **dict.fromkeys(("repair", "fix"), "salvage"),
    **dict.fromkeys(("set", "config", "properties", "set-options"), "options"),
    **dict.fromkeys(("tag", "snapshot"), "savepoint"),
    **dict.fromkeys(("undo", "revert", "reset"), "restore"),
    **dict.fromkeys(("run", "serve", "daemon", "start"), "worker"),
    **dict.fromkeys(("status", "lag"), "services"),
    **dict.fromkeys(("sync", "hive-sync", "register-table"), "register"),
    **dict.fromkeys(("columns",), "schema"),
    **dict.fromkeys(("add-column", "add"), "alter PATH add"),
    **dict.fromkeys(("drop-column",), "alter PATH drop"),
    **dict.fromkeys(("rename-column", "rename"), "alter PATH rename"),
    **dict.fromkeys(("widen-column", "widen"), "alter PATH widen"),
    **dict.fromkeys(("retype-column", "retype", "cast", "astype"), "alter PATH retype"),
}
"""Commands of other programs -> ours."""


class WordsParser(argparse.ArgumentParser):
    """Names the nearest word and `--help` where argparse lists all that there are."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known, word = [str(one) for one in action.choices], str(value)
        if not isinstance(action, argparse._SubParsersAction):
            name = "/".join(action.option_strings) or str(action.metavar or action.dest)
            near = import_module("hoodoo.arguments").value_meant(word, known)
            self._refuse(f"{name} takes {', '.join(known[:-1])} or {known[-1]}, not {word!r}", near)
        near = import_module("hoodoo.nearest").nearest(word, known)
        if action.dest == "command":
            near = _COMMANDS.get(word.lower().replace("_", "-"), near)
            near = near and f"{self.prog} {near}"
        self._refuse(f"there is no command {word!r}", near)

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse; a command refuses by itself what it does not know.

        Args:
            args: The words. None (default): those of the process.
            namespace: Where to put what they say. None (default): a new one.

        Returns:
            What they say, and what is left for the program to refuse.
        """
        found, left = super().parse_known_args(args, namespace)
        if left:
            self._refuse_argument(left)
        return found, left

    def _refuse_argument(self, left: Sequence[str]) -> NoReturn:
        flag = next((one for one in left if one.startswith("-")), None)
        if flag is None:
            self._refuse(f"{left[0]!r} is one word too many: a text with spaces stands in double quotes", None)
        flag = flag.partition("=")[0]
        known = [one for action in self._actions for one in action.option_strings if one.startswith("--")]
        plain = {one[2:].replace("-", "_"): one for one in known}
        word = flag.lstrip("-").replace("-", "_")
        meant = import_module("hoodoo.hints").argument_meant(word, list(plain))
        place = "" if self._subparsers is None else " before the command"
        self._refuse(f"there is no {flag}{place}", plain.get(meant or ""))

    def _refuse(self, what: str, near: str | None) -> NoReturn:
        """End the process with what is wrong and what may be meant, without the usage."""
        self.exit(
            2, f"{self.prog}: error: {what}; {f'did you mean {near}? ' if near else ''}{self.prog} --help lists all\n"
        )


__all__ = ["WordsParser"]
