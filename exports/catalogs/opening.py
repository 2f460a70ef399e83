"""Opening of pyiceberg catalogs.

The catalog arguments are checked before anything is written. pyiceberg opens a catalog, from its own configuration or
as an object that the caller created.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hoodoo.errors import CatalogRefused, EngineError, OptionError
from hoodoo.redact import printable


def require_dotted_identifier(option: str, identifier: object) -> str:
    if not isinstance(identifier, str) or not all(identifier.split(".")) or "." not in identifier:
        raise OptionError(
            f"Option {option} is invalid: expected the table in the catalog as 'namespace.table', got "
            f"{printable(identifier)}.",
            option=option,
        )
    return identifier


def create_catalog_opener(catalog: object, properties: object) -> Callable[[], Any]:
    """Create a function that opens a pyiceberg catalog.

    The arguments are checked at once.

    Args:
        catalog: A pyiceberg catalog, or the name of a catalog in pyiceberg's configuration. None: 'default'.
        properties: Properties of a catalog that is given by name. They override the configuration. None: no properties.

    Returns:
        A function that opens the catalog. It raises OptionError if the catalog cannot be opened.

    Raises:
        EngineError: pyiceberg is not installed.
        OptionError: An argument has the wrong type.
    """
    settings = {} if properties is None else properties
    if not isinstance(settings, Mapping):
        raise OptionError(
            "Option catalog_properties is invalid: expected names and values, such as {'type': 'sql', 'uri': "
            f"'...'}}, got {printable(properties)}.",
            option="catalog_properties",
        )
    try:
        from pyiceberg.catalog import Catalog, load_catalog
    except ImportError:
        raise EngineError(
            "Catalogs need pyiceberg. Install it: pip install 'hoodoo[iceberg]'.", library="pyiceberg"
        ) from None
    source = "default" if catalog is None else catalog
    if isinstance(source, Catalog):
        return lambda: source
    if not isinstance(source, str) or not source:
        raise OptionError(
            "Option catalog is invalid: expected a pyiceberg catalog, or the name of a catalog in pyiceberg's "
            f"configuration, got {printable(catalog)}.",
            option="catalog",
        )

    def opened() -> Any:
        try:
            return load_catalog(source, **settings)
        except Exception as problem:  # each catalog raises its own errors
            raise OptionError(
                f"pyiceberg cannot open the catalog {printable(source)}: {str(problem).rstrip('. ')}. Set its "
                "properties in pyiceberg's configuration (.pyiceberg.yaml), or pass them as --catalog-property "
                "NAME=VALUE, such as type=sql and uri=...",
                option="catalog",
            ) from problem

    return opened


def require_existing_namespace(catalog: Any, identifier: str) -> None:
    namespace = identifier.rpartition(".")[0]
    try:
        exists = catalog.namespace_exists(namespace)
    except Exception as problem:  # each catalog raises its own errors
        raise CatalogRefused(
            f"The catalog did not respond to a request for its namespace {namespace!r}: "
            f"{(str(problem) or type(problem).__name__).rstrip('. ')}. Check the catalog, then try again.",
            identifier=identifier,
        ) from problem
    if not exists:
        raise CatalogRefused(
            f"Namespace {namespace!r} does not exist in the catalog. Create it there first.", identifier=identifier
        )
