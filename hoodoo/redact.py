"""Keeps secrets out of everything a person or a log may see. Knows nothing but text."""

from __future__ import annotations

import re

_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")
_PAIR = re.compile(
    r"(?i)((?:[\w.-]*(?:secret|token|password|passwd|signature|credential|access[_-]?key)[\w.-]*)[\"']?\s*[=:]\s*[\"']?)([^\s\"'&,;)}]+)"
)
_VISIBLE = 200


def redact(text: str) -> str:
    """`text` with URL user parts and the values of secret-looking names replaced by ***."""
    if "://" in text:
        text = _USERINFO.sub("***@", text)
    return _PAIR.sub(r"\1***", text) if "=" in text or ":" in text else text


def printable(value: object, limit: int = _VISIBLE) -> str:
    """User data for a log line or an error: escaped, so that no control character reaches a terminal, and cut at
    `limit`.
    """
    try:
        text = ascii(value) if not isinstance(value, str) else repr(value)
    except Exception:  # a huge number, or an object that fails to describe itself
        text = f"a value of type {type(value).__name__}"
    text = text or f"a {type(value).__name__} without content"
    return text if len(text) <= limit else text[:limit] + "..."
