"""DuckDB engine for SQL expressions.

DuckDB evaluates expressions of `where`, `update` and `merge`. Other modules decide which expressions are allowed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cache
from typing import Any

from hoodoo.errors import EngineError
from hoodoo.redact import printable

DEPTH_MAX = 150
"""Maximum nesting depth of an expression.

Each level of it needs several JSON levels on Python's stack.
"""
_SETTINGS = (
    "SET GLOBAL TimeZone='UTC'",
    f"SET GLOBAL max_expression_depth={DEPTH_MAX}",
    "SET enable_external_access=false",
    "SET lock_configuration=true",
)


def available() -> bool:
    try:
        import duckdb  # noqa: F401  an extra
    except ImportError:
        return False
    return True


_lock = threading.Lock()


@cache
def _open_database() -> Any:
    # The database cannot read files, and its settings are locked. It has one thread, because tasks already run in
    # parallel.
    import duckdb

    try:
        root = duckdb.connect(":memory:", config={"threads": 1, "python_enable_replacements": False})
        for setting in _SETTINGS:
            root.execute(setting)
    except duckdb.IOException as problem:  # the working folder of the process was deleted, for example
        raise EngineError(
            f"DuckDB, which evaluates SQL expressions, cannot start: {printable(str(problem))}. Start the "
            "process in an existing folder."
        ) from None
    return root


def cursor() -> Any:
    with _lock:
        return _open_database().cursor()


def ask(query: str, value: str) -> str:
    with cursor() as connection:
        return str(connection.execute(query, [value]).fetchone()[0])


@cache
def catalog() -> Mapping[str, frozenset[tuple[str, str | None]]]:
    overloads: dict[str, set[tuple[str, str | None]]] = {}
    with cursor() as connection:
        rows = connection.execute("SELECT function_name, function_type, stability FROM duckdb_functions()").fetchall()
    for name, kind, stability in rows:
        overloads.setdefault(name.lower(), set()).add((kind, stability))
    return {name: frozenset(kinds) for name, kinds in overloads.items()}


__all__ = ["DEPTH_MAX", "ask", "available", "catalog", "cursor"]
