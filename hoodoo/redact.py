"""Redaction of passwords and other secrets in text."""

from __future__ import annotations

import re

_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")
_PAIR = re.compile(
    r"(?i)((?:[\w.-]*(?:secret|token|password|passwd|signature|credential|access[_-]?key)[\w.-]*)[\"']?\s*[=:]\s*[\"']?)([^\s\"'&,;)}]+)"
)
_VISIBLE = 200


def redact(text: str) -> str:
    """Redact secrets in a text: write *** instead."""
    if "://" in text:
        text = _USERINFO.sub("***@", text)
    return _PAIR.sub(r"\1***", text) if "=" in text or ":" in text else text


def printable(value: object, limit: int = _VISIBLE) -> str:
    """Return user data as printable text for logs and errors."""
    try:
        text = ascii(value) if not isinstance(value, str) else repr(value)
    except Exception:  # a huge number, or an object whose repr fails
        text = f"a value of type {type(value).__name__}"
    text = text or f"a {type(value).__name__} without content"
    return text if len(text) <= limit else text[:limit] + "..."
