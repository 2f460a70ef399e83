"""Store that belongs to the path of a table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from hoodoo.errors import OptionError
from hoodoo.redact import printable
from hoodoo.storage.local import LocalStore
from hoodoo.storage.store import Store

_PATH_MAX = 1_000  # for the path of a table; S3 allows 1,024 bytes including the names of files
_SEGMENT_MAX = 255


def open_store(uri: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> Store:
    """Open the store of a table by its path.

    Args:
        uri: A local path, `file://...`, or `s3://bucket/prefix`.
        options: Storage options. For S3: endpoint, region, access_key, secret_key, session_token and allow_http. By
            default, boto3 finds the credentials in its usual way. For a local path: allow_network_fs.

    Raises:
        OptionError: The path or an option is invalid.
    """
    text = _require_valid_path(uri)
    if options is not None and not (isinstance(options, Mapping) and all(isinstance(name, str) for name in options)):
        raise OptionError(
            f"Option storage must be a dict from option names to values, got {printable(options)}.", option="storage"
        )
    if text.startswith(("s3://", "s3a://")):
        from hoodoo.storage.s3 import S3Store  # imported late, because importing boto3 takes 0.2 s

        return S3Store(text, options)
    if text.lower().startswith(("s3:", "s3a:")):
        raise OptionError(f"{printable(text)} is not a valid S3 path. Write s3://bucket/prefix.", option="path")
    return LocalStore(text, options)


def _require_valid_path(uri: str | os.PathLike[str]) -> str:
    try:
        text: Any = os.fspath(uri)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise OptionError(
            f"Option path must be a string or a pathlib.Path, got {printable(uri)}. Convert bytes with os.fsdecode().",
            option="path",
        )
    if not text:
        raise OptionError("path is empty. Pass '.' for the current folder.", option="path")
    if "\0" in text or not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        raise OptionError(
            f"Option path must not contain NUL or surrogate characters, got {printable(text)}.", option="path"
        )
    if len(text) > _PATH_MAX or any(len(part.encode()) > _SEGMENT_MAX for part in text.split("/")):
        raise OptionError(
            f"path is too long: expected at most {_PATH_MAX:,} characters and {_SEGMENT_MAX} bytes per segment, got "
            f"{printable(text)}.",
            option="path",
        )
    return text
