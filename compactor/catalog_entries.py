"""Updates of catalog entries, such as those in Glue.

A catalog may be unavailable, refuse a request or hang. Each request therefore runs in its own thread, and the caller
polls for the response. A slow catalog does not delay other work. A request fails after a minute without a response.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hoodoo.errors import CatalogRefused, OptionError
from hoodoo.redact import printable
from hoodoo.timeline.properties.config import TableConfig
from hoodoo.timeline.views.view import View
from hoodoo.writers.context import Context

OF_ICEBERG, OF_HUDI = "register ", "register-hudi "
"""Prefixes in the names of tasks that update a catalog entry."""
_TIMEOUT_S = 60.0
_AT_ONCE_S = 1.0
# Seconds to wait for a response while other work waits. Most catalogs respond faster.


class _CatalogRequest:
    # `again` is True if the table has changed, so that the request must be repeated.
    def __init__(self, ask: Callable[[], str]) -> None:
        self.again, self.until = False, time.monotonic() + _TIMEOUT_S
        self._answer: list[str | BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(ask,), daemon=True)
        self._thread.start()

    def _run(self, ask: Callable[[], str]) -> None:
        try:
            self._answer.append(ask())
        except BaseException as problem:  # `answer` raises it
            self._answer.append(problem)

    def has_answer(self, wait_seconds: float) -> bool:
        self._thread.join(max(0.0, min(wait_seconds, self.until - time.monotonic())))
        return bool(self._answer)

    def answer(self) -> str:
        response = self._answer[0]
        if isinstance(response, BaseException):
            raise response
        return response


@dataclass
class CatalogEntries:
    """Catalog entries of one table.

    Attributes:
        iceberg: The name of the entry of the exported Iceberg table, or '' if there is no such entry.
        hudi: The name of the Hudi entry, or '' if there is no such entry.
        opened: Function that opens the catalog.
        lock: Lock that every request holds, because the catalog's client is not thread-safe.
    """

    iceberg: str
    hudi: str
    opened: Callable[[], Any]
    lock: threading.Lock
    _asked: dict[str, _CatalogRequest] = field(default_factory=dict)

    def parts(self, kind: str) -> list[str]:
        name = self.hudi if kind == OF_HUDI else self.iceberg
        return [kind + name] if name else []

    def unanswered(self) -> set[str]:
        return set(self._asked)

    def update_or_await_entry(self, part: str, context: Context, anew: bool, patient: bool) -> str | None:
        """Update a catalog entry.

        If an update is already running, its response is fetched instead.

        Args:
            part: A work part from `parts`.
            context: The context of the table.
            anew: True if the table has changed since the last call.
            patient: True waits up to a minute for the response.

        Returns:
            The change: 'registered', 'moved', 'refreshed' or 'kept'. None if the catalog has not responded yet. Call
            again later in that case.

        Raises:
            CatalogRefused: The catalog refused the request or did not respond in time.
            OptionError: The catalog does not exist, or the table was never exported to Iceberg.
        """
        known = self._asked.get(part)
        if known:
            known.again |= anew
        asked = known or self._ask(part, context)
        if not asked.has_answer(_TIMEOUT_S if patient else 0.0 if known else _AT_ONCE_S):
            if time.monotonic() < asked.until:
                return None
            raise _no_response_error(part)
        del self._asked[part]
        if asked.again:
            self._ask(part, context)
        return asked.answer()

    def _ask(self, part: str, context: Context) -> _CatalogRequest:
        def ask() -> str:
            with self.lock:
                return (_update_hudi_entry if part.startswith(OF_HUDI) else _update_iceberg_entry)(self, context)

        self._asked[part] = _CatalogRequest(ask)
        return self._asked[part]


def _no_response_error(part: str) -> CatalogRefused:
    name = part.partition(" ")[2]
    return CatalogRefused(
        f"The catalog has not responded for at least {_TIMEOUT_S:g} seconds to a request about the entry {name!r}. "
        "Check whether the catalog works; the worker retries.",
        identifier=name,
    )


def _update_hudi_entry(entries: CatalogEntries, context: Context) -> str:
    from hoodoo.exports.catalogs.hudi_registration import HudiRegistration

    def look() -> tuple[TableConfig, View]:
        state = context.timeline.look()
        return state.config, state.view

    registered = HudiRegistration(entries.hudi, entries.opened()).update_entries(context.store, look)
    changes = [entry.change for entry in registered.entries if entry.change != "kept"]
    return changes[0] if changes else "kept"


def _update_iceberg_entry(entries: CatalogEntries, context: Context) -> str:
    from hoodoo.exports.catalogs.registration import IcebergRegistration
    from hoodoo.exports.iceberg import metadata_files

    version, _ = metadata_files.find_newest_metadata(context.store)
    if not version:
        raise OptionError(
            f"Option register is {entries.iceberg!r}, but the table has no Iceberg export. Set its option "
            "export_formats to 'iceberg' or 'both', or use register_hudi (--register-hudi).",
            option="export_formats",
        )
    registration = IcebergRegistration(entries.iceberg, entries.opened())
    return registration.run(context.store, metadata_files.metadata_key(version)).change


def collect_entries_by_table(
    tables: Sequence[str],
    register: object,
    register_hudi: object,
    catalog: object,
    catalog_properties: object,
) -> dict[str, CatalogEntries]:
    """Collect the catalog entries of each table.

    The keys are table paths. The result is empty if both `register` and `register_hudi` are None.

    Args:
        tables: The paths of the tables.
        register: The entries of Iceberg exports, one per table, or a single string for one table. None: no entries.
        register_hudi: The Hudi entries, in the same form. None: no entries.
        catalog: A pyiceberg catalog, or the name of a catalog.
        catalog_properties: Properties of a named catalog.

    Raises:
        EngineError: pyiceberg is not installed.
        OptionError: An argument is invalid, or the number of entries differs from the number of tables.
    """
    if register is None and register_hudi is None:
        if catalog is not None or catalog_properties:
            raise OptionError(
                "Option catalog needs the name of an entry. Pass register='namespace.table' (--register), or "
                "register_hudi (--register-hudi).",
                option="register",
            )
        return {}
    from hoodoo.exports.catalogs.hudi_registration import HUDI_KINDS, require_namespace_and_name
    from hoodoo.exports.catalogs.opening import create_catalog_opener, require_dotted_identifier

    iceberg = _require_one_per_table("register", register, tables, require_dotted_identifier)
    hudi = _require_one_per_table("register_hudi", register_hudi, tables, require_namespace_and_name)
    if common := set(iceberg) & set(hudi) - {""}:
        raise OptionError(
            f"Options register and register_hudi both name {printable(min(common))}. Use different names for the "
            "Iceberg entry and the Hudi entry.",
            option="register_hudi",
        )
    kind = catalog_properties.get("type") if isinstance(catalog_properties, Mapping) else None
    if register_hudi is not None and kind is not None and kind not in HUDI_KINDS:
        raise OptionError(
            f"Option register_hudi does not support this catalog: expected type {' or '.join(HUDI_KINDS)}, got "
            f"{printable(kind)}. Use register for an Iceberg entry.",
            option="register_hudi",
        )
    opened, shared = create_catalog_opener(catalog, catalog_properties), threading.Lock()
    is_named = catalog is None or isinstance(catalog, str)  # then each table opens its own catalog
    return {
        path: CatalogEntries(of_iceberg, of_hudi, opened, threading.Lock() if is_named else shared)
        for path, of_iceberg, of_hudi in zip(tables, iceberg, hudi, strict=True)
    }


def _require_one_per_table(
    option: str, identifiers: object, tables: Sequence[str], required: Callable[[str, object], str]
) -> Sequence[str]:
    if identifiers is None:
        return [""] * len(tables)
    if not isinstance(identifiers, Iterable) or isinstance(identifiers, (bytes, dict)):
        raise OptionError(
            f"Option {option} is invalid: expected 'namespace.table', or a list with one name per table, got "
            f"{printable(identifiers)}.",
            option=option,
        )
    entries = [
        required(option, identifier) for identifier in ([identifiers] if isinstance(identifiers, str) else identifiers)
    ]
    if len(entries) != len(tables):
        raise OptionError(
            f"Option {option} must contain one entry per table, in the order of the tables: expected {len(tables)}, "
            f"got {len(entries)}.",
            option=option,
        )
    for name in entries:
        if entries.count(name) > 1:
            raise OptionError(
                f"Option {option} contains {printable(name)} twice. Use a different name for each table.", option=option
            )
    return entries
