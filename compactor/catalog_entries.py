"""The entries in catalogs that a worker keeps up to date: which they are, and how one is brought up to date.

A catalog is no part of the table's store: it may be away, refuse, or not answer at all. So each entry is asked for on a
thread of its own, and whoever asks comes back for the answer: nothing else waits for a catalog. One that has not
answered for a minute failed. When an entry is asked for, others know.
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
"""How the name of the part of the work begins that is an entry; its name in the catalog follows."""
_PATIENCE_S = 60.0
_AT_ONCE_S = 1.0
"""How long an answer is waited for where others wait, too: most catalogs take less."""


class _Question:
    """One that a catalog was asked, on a thread of its own. again: to be asked again, since the table changed since."""

    def __init__(self, ask: Callable[[], str]) -> None:
        self.again, self.until = False, time.monotonic() + _PATIENCE_S
        self._answer: list[str | BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(ask,), daemon=True)
        self._thread.start()

    def _run(self, ask: Callable[[], str]) -> None:
        try:
            self._answer.append(ask())
        except BaseException as problem:  # whoever comes for the answer raises it
            self._answer.append(problem)

    def has_answer(self, wait_s: float) -> bool:
        self._thread.join(max(0.0, min(wait_s, self.until - time.monotonic())))
        return bool(self._answer)

    def answer(self) -> str:
        found = self._answer[0]
        if isinstance(found, BaseException):
            raise found
        return found


@dataclass
class CatalogEntries:
    """The entries of one table.

    iceberg, hudi: their names in the catalog, '' for none: of the exported Iceberg table, and Hudi's own.
    opened: opens the catalog.
    lock: held while the catalog is asked, by all who ask it: its client is not for several threads.
    """

    iceberg: str
    hudi: str
    opened: Callable[[], Any]
    lock: threading.Lock
    _asked: dict[str, _Question] = field(default_factory=dict)

    def parts(self, kind: str) -> list[str]:
        """Return the entries of a kind, `OF_HUDI` or `OF_ICEBERG`, as parts of the work: one or none."""
        name = self.hudi if kind == OF_HUDI else self.iceberg
        return [kind + name] if name else []

    def unanswered(self) -> set[str]:
        """Return the parts whose answer nobody came for."""
        return set(self._asked)

    def bring(self, part: str, context: Context, anew: bool, patient: bool) -> str | None:
        """Bring an entry up to date.

        Args:
            part: One of `parts`.
            context: Of the table.
            anew: True where the table changed since the last call.
            patient: True waits for the answer for a minute.

        Returns:
            What was done: 'registered', 'moved', 'refreshed' or 'kept'. None where the catalog has not answered yet:
            come again.

        Raises:
            CatalogRefused: The catalog refuses, or does not answer.
            OptionError: There is no such catalog, or the table has no Iceberg export.
        """
        known = self._asked.get(part)
        if known:
            known.again |= anew
        asked = known or self._ask(part, context)
        if not asked.has_answer(_PATIENCE_S if patient else 0.0 if known else _AT_ONCE_S):
            if time.monotonic() < asked.until:
                return None
            raise _no_answer(part)
        del self._asked[part]
        if asked.again:
            self._ask(part, context)
        return asked.answer()

    def _ask(self, part: str, context: Context) -> _Question:
        def ask() -> str:
            with self.lock:
                return (_bring_hudi if part.startswith(OF_HUDI) else _bring_iceberg)(self, context)

        self._asked[part] = _Question(ask)
        return self._asked[part]


def _no_answer(part: str) -> CatalogRefused:
    name = part.partition(" ")[2]
    return CatalogRefused(
        f"The catalog has not answered for {_PATIENCE_S:g} seconds or longer about the entry {name!r}. Look after it; "
        "the worker tries again.",
        identifier=name,
    )


def _bring_hudi(entries: CatalogEntries, context: Context) -> str:
    from hoodoo.exports.catalogs.hudi_registration import HudiRegistration

    def look() -> tuple[TableConfig, View]:
        state = context.timeline.look()
        return state.config, state.view

    done = HudiRegistration(entries.hudi, entries.opened()).run(context.store, look)
    changes = [one.change for one in done.entries if one.change != "kept"]
    return changes[0] if changes else "kept"


def _bring_iceberg(entries: CatalogEntries, context: Context) -> str:
    from hoodoo.exports.catalogs.registration import Registration
    from hoodoo.exports.iceberg import metadata_files

    version, _ = metadata_files.newest(context.store)
    if not version:
        raise OptionError(
            f"The worker is to register {entries.iceberg!r}, and the table has no Iceberg export. Set its option "
            "export_formats to 'iceberg' or 'both'; register_hudi (--register-hudi) needs none.",
            option="export_formats",
        )
    registration = Registration(entries.iceberg, entries.opened())
    return registration.run(context.store, metadata_files.metadata_key(version)).change


def given_entries(
    tables: Sequence[str],
    register: object,
    register_hudi: object,
    catalog: object,
    catalog_properties: object,
) -> dict[str, CatalogEntries]:
    """Return the entries that each table has, by its path: none where nothing is to be registered.

    Args:
        tables: The paths of the tables.
        register: The entries of Iceberg exports, one for each table; a text for one table. None: none.
        register_hudi: Hudi's own entries, likewise.
        catalog: A catalog of pyiceberg, or the name of one.
        catalog_properties: Of a catalog that is named.

    Raises:
        EngineError: pyiceberg is not installed.
        OptionError: An argument is of another kind, or there are more or fewer entries than tables.
    """
    if register is None and register_hudi is None:
        if catalog is not None or catalog_properties:
            raise OptionError(
                "A catalog is given, but no table of it: pass register='namespace.table' (--register), or "
                "register_hudi (--register-hudi).",
                option="register",
            )
        return {}
    from hoodoo.exports.catalogs.hudi_registration import HUDI_KINDS, require_hudi_identifier
    from hoodoo.exports.catalogs.opening import opener, require_identifier

    iceberg = _one_each("register", register, tables, require_identifier)
    hudi = _one_each("register_hudi", register_hudi, tables, require_hudi_identifier)
    if both := set(iceberg) & set(hudi) - {""}:
        raise OptionError(
            f"register and register_hudi both name {printable(min(both))}: an Iceberg entry and Hudi's own cannot be "
            "one. Give them names of their own.",
            option="register_hudi",
        )
    kind = catalog_properties.get("type") if isinstance(catalog_properties, Mapping) else None
    if register_hudi is not None and kind is not None and kind not in HUDI_KINDS:
        raise OptionError(
            f"register_hudi takes a catalog of the kind {' or '.join(HUDI_KINDS)}, got {printable(kind)}: others hold "
            "no Hudi tables.",
            option="register_hudi",
        )
    opened, shared = opener(catalog, catalog_properties), threading.Lock()
    named = catalog is None or isinstance(catalog, str)  # then each table opens it for itself
    return {
        path: CatalogEntries(of_iceberg, of_hudi, opened, threading.Lock() if named else shared)
        for path, of_iceberg, of_hudi in zip(tables, iceberg, hudi, strict=True)
    }


def _one_each(
    option: str, given: object, tables: Sequence[str], required: Callable[[str, object], str]
) -> Sequence[str]:
    if given is None:
        return [""] * len(tables)
    if not isinstance(given, Iterable) or isinstance(given, (bytes, dict)):
        raise OptionError(
            f"{option} takes 'namespace.table', or a list with one for each table, got {printable(given)}.",
            option=option,
        )
    found = [required(option, one) for one in ([given] if isinstance(given, str) else given)]
    if len(found) != len(tables):
        raise OptionError(
            f"{option} takes one entry for each table, in the order of the tables: {len(tables)}, got {len(found)}.",
            option=option,
        )
    for name in found:
        if found.count(name) > 1:
            raise OptionError(
                f"{option} names {printable(name)} twice. Give each table a name of its own.", option=option
            )
    return found
