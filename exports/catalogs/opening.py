"""Which catalog is meant, and which entry of it: arguments, checked before anything is written.

pyiceberg knows how catalogs are reached: by its own configuration, or by the catalog object that a caller made. What an
entry says, others know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hoodoo.errors import CatalogRefused, EngineError, OptionError
from hoodoo.redact import printable


def require_identifier(option: str, identifier: object) -> str:
    """Return the name of a table in a catalog. Raises OptionError where it has no namespace."""
    if not isinstance(identifier, str) or not all(identifier.split(".")) or "." not in identifier:
        raise OptionError(
            f"{option} must be the table in the catalog as 'namespace.table', got {printable(identifier)}.",
            option=option,
        )
    return identifier


def opener(catalog: object, properties: object) -> Callable[[], Any]:
    """What gives the catalog, a catalog of pyiceberg, when it is called.

    Args:
        catalog: A catalog of pyiceberg, or the name of one in its configuration. None: 'default'.
        properties: Names and values, of a catalog that is named: they go before those in the configuration. None: none.

    Returns:
        A function that opens the catalog. It raises OptionError where that cannot be.

    Raises:
        EngineError: pyiceberg is not installed.
        OptionError: An argument is of another kind.
    """
    given = {} if properties is None else properties
    if not isinstance(given, Mapping):
        raise OptionError(
            "catalog_properties takes names and values, as {'type': 'sql', 'uri': '...'}, got "
            f"{printable(properties)}.",
            option="catalog_properties",
        )
    try:
        from pyiceberg.catalog import Catalog, load_catalog
    except ImportError:
        raise EngineError(
            "Catalogs need pyiceberg. Install it: pip install 'hoodoo[iceberg]'.", library="pyiceberg"
        ) from None
    named = "default" if catalog is None else catalog
    if isinstance(named, Catalog):
        return lambda: named
    if not isinstance(named, str) or not named:
        raise OptionError(
            "catalog must be a pyiceberg catalog, or the name of a catalog in its configuration, got "
            f"{printable(catalog)}.",
            option="catalog",
        )

    def opened() -> Any:
        try:
            return load_catalog(named, **given)
        except Exception as problem:  # of any kind: each catalog has its own
            raise OptionError(
                f"pyiceberg cannot open the catalog {printable(named)}: {str(problem).rstrip('. ')}. Its properties "
                "stand in pyiceberg's configuration (.pyiceberg.yaml), or are given as --catalog-property NAME=VALUE, "
                "such as type=sql and uri=...",
                option="catalog",
            ) from problem

    return opened


def require_namespace(catalog: Any, identifier: str) -> None:
    """Raise CatalogRefused where the catalog has no namespace for the entry, or cannot be asked."""
    namespace = identifier.rpartition(".")[0]
    try:
        there = catalog.namespace_exists(namespace)
    except Exception as problem:  # of any kind: each catalog has its own
        raise CatalogRefused(
            f"The catalog did not respond for its namespace {namespace!r}: "
            f"{(str(problem) or type(problem).__name__).rstrip('. ')}. Check the catalog, then try again.",
            identifier=identifier,
        ) from problem
    if not there:
        raise CatalogRefused(
            f"The catalog has no namespace {namespace!r}. Create it there first.", identifier=identifier
        )
