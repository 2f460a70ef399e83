"""Parser that suggests similar words on the command line.

The commands are defined in main.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

_COMMANDS = {
    **dict.fromkeys(("query", "select", "read", "show", "head", "cat", "count", "rows"), "scan"),
    **dict.fromkeys(("dump", "save", "to-csv", "to-parquet"), "scan PATH --output FILE"),
    **dict.fromkeys(("time-travel", "as-of"), "scan PATH --as-of POSITION"),
    **dict.fromkeys(("append", "write", "load", "import", "merge", "put"), "upsert"),
    **dict.fromkeys(("init", "new", "create-table"), "create"),
    **dict.fromkeys(("drop-table", "delete-table", "remove", "rm"), "drop"),
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
"""Equivalent hoodoo commands by command name in other programs."""


class WordsParser(argparse.ArgumentParser):
    """Argument parser whose errors suggest similar names.

    Attributes:
        as_json: True if errors are printed as JSON, as all commands do with `--json`.
    """

    as_json = False

    def error(self, message: str) -> NoReturn:
        if self.as_json:
            self.exit(2, f"{self.prog}: error: {message}\n")
        super().error(message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Exit with a status and a message."""
        if self.as_json and status and message:
            said = {"code": "OPTION", "message": message.strip().removeprefix(f"{self.prog}: error: ")}
            message = json.dumps({"error": said}) + "\n"
        super().exit(status, message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known, word = [str(one) for one in action.choices], str(value)
        if not isinstance(action, argparse._SubParsersAction):
            name = "/".join(action.option_strings) or str(action.metavar or action.dest)
            near = import_module("hoodoo.arguments").find_similar_value(word, known)
            self._exit_with_suggestion(f"{name} must be {', '.join(known[:-1])} or {known[-1]}, not {word!r}", near)
        near = import_module("hoodoo.nearest").find_nearest_name(word, known)
        if action.dest == "command":
            near = _COMMANDS.get(word.lower().replace("_", "-"), near)
            near = near and f"{self.prog} {near}"
        self._exit_with_suggestion(f"command {word!r} does not exist", near)

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse arguments, and suggest corrections for unknown arguments.

        Subcommands do this themselves, so that the suggestion is one of their own arguments.

        Args:
            args: The arguments. None (default): the arguments of the process.
            namespace: The object that receives the values. None (default): a new one.

        Returns:
            The parsed values, and the unknown arguments, which are always empty.
        """
        found, left = super().parse_known_args(args, namespace)
        if left:
            self._refuse_argument(left)
        return found, left

    def _refuse_argument(self, left: Sequence[str]) -> NoReturn:
        flag = next((one for one in left if one.startswith("-")), None)
        if flag is None:
            self._exit_with_suggestion(
                f"unexpected argument {left[0]!r}: put a value with spaces in double quotes", None
            )
        flag = flag.partition("=")[0]
        known = [one for action in self._actions for one in action.option_strings if one.startswith("--")]
        plain = {one[2:].replace("-", "_"): one for one in known}
        word = flag.lstrip("-").replace("-", "_")
        meant = import_module("hoodoo.hints").find_similar_argument(word, list(plain))
        place = "" if self._subparsers is None else " before the command"
        self._exit_with_suggestion(f"there is no option {flag}{place}", plain.get(meant or ""))

    def _exit_with_suggestion(self, what: str, near: str | None) -> NoReturn:
        self.exit(
            2, f"{self.prog}: error: {what}; {f'did you mean {near}? ' if near else ''}{self.prog} --help lists all\n"
        )


__all__ = ["WordsParser"]
