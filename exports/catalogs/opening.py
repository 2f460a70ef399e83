"""Opening of pyiceberg catalogs, and validation of the catalog arguments before anything is written.

pyiceberg opens a catalog, from its own configuration or as an object that the caller created.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hoodoo.errors import CatalogRefused, EngineError, OptionError
from hoodoo.redact import printable


def require_identifier(option: str, identifier: object) -> str:
    """Return the name of a table in a catalog. Raises OptionError unless it has the form 'namespace.table'."""
    if not isinstance(identifier, str) or not all(identifier.split(".")) or "." not in identifier:
        raise OptionError(
            f"{option} must be the table in the catalog as 'namespace.table', got {printable(identifier)}.",
            option=option,
        )
    return identifier


def opener(catalog: object, properties: object) -> Callable[[], Any]:
    """Validate the catalog arguments, and return a function that opens the pyiceberg catalog.

    Args:
        catalog: A pyiceberg catalog, or the name of a catalog in pyiceberg's configuration. None: 'default'.
        properties: Properties of a catalog that is given by name. They override the configuration. None: no properties.

    Returns:
        A function that opens the catalog. It raises OptionError if the catalog cannot be opened.

    Raises:
        EngineError: pyiceberg is not installed.
        OptionError: An argument has the wrong type.
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
        except Exception as problem:  # each catalog raises its own errors
            raise OptionError(
                f"pyiceberg cannot open the catalog {printable(named)}: {str(problem).rstrip('. ')}. Its properties "
                "stand in pyiceberg's configuration (.pyiceberg.yaml), or are given as --catalog-property NAME=VALUE, "
                "such as type=sql and uri=...",
                option="catalog",
            ) from problem

    return opened


def require_namespace(catalog: Any, identifier: str) -> None:
    """Raise CatalogRefused if the catalog does not contain the namespace of the entry, or cannot be reached."""
    namespace = identifier.rpartition(".")[0]
    try:
        there = catalog.namespace_exists(namespace)
    except Exception as problem:  # each catalog raises its own errors
        raise CatalogRefused(
            f"The catalog did not respond for its namespace {namespace!r}: "
            f"{(str(problem) or type(problem).__name__).rstrip('. ')}. Check the catalog, then try again.",
            identifier=identifier,
        ) from problem
    if not there:
        raise CatalogRefused(
            f"The catalog lacks namespace {namespace!r}. Create it there first.", identifier=identifier
        )
