"""Records of the services: one event with its fields a line. Knows neither who writes them nor how
they reach a person.
"""

from __future__ import annotations

import json
import logging
import re
from typing import Any

from hoodoo.errors import TryAgainError
from hoodoo.redact import redact

log = logging.getLogger("hoodoo.worker")


def record(event: str, fields: dict[str, Any]) -> str:
    """One line `event=... key=value ...`: values without blanks stand bare, others as JSON text, so that no control
    character gets through.
    """
    return " ".join(f"{name}={_plain(value)}" for name, value in {"event": event, **fields}.items())


def _plain(value: Any) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text if re.fullmatch(r"[\w.,/:@+*-]+", text, re.ASCII) else json.dumps(text)


def say(level: int, event: str, to: logging.Logger = log, **fields: Any) -> None:
    """Log a record; handlers that want fields find them in `.hoodoo`."""
    safe = {name: redact(value) if isinstance(value, str) else value for name, value in fields.items()}
    to.log(level, "%s", record(event, safe), extra={"hoodoo": {"event": event, **safe}})


def failure(event: str, problem: Exception, to: logging.Logger = log, **fields: Any) -> None:
    """Say that something raised: a warning where trying again may help."""
    level = logging.WARNING if isinstance(problem, TryAgainError) else logging.ERROR
    say(level, event, to, **fields, error=type(problem).__name__, message=str(problem))
