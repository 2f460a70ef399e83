"""Log records of table services."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

from hoodoo.errors import TryAgainError
from hoodoo.redact import redact

log = logging.getLogger("hoodoo.worker")


def record(event: str, fields: dict[str, Any]) -> str:
    return " ".join(f"{name}={_plain(value)}" for name, value in {"event": event, **fields}.items())


def _plain(value: Any) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text if re.fullmatch(r"[\w.,/:@+*-]+", text, re.ASCII) else json.dumps(text)


def log_event(level: int, event: str, to: logging.Logger = log, **fields: Any) -> None:
    """Log an event of a table service.

    Log handlers find the fields in the attribute `hoodoo` of the log record.
    """
    safe = {name: redact(value) if isinstance(value, str) else value for name, value in fields.items()}
    to.log(level, "%s", record(event, safe), extra={"hoodoo": {"event": event, **safe}})


def log_failure(event: str, problem: Exception, to: logging.Logger = log, **fields: Any) -> None:
    level = logging.WARNING if isinstance(problem, TryAgainError) else logging.ERROR
    log_event(level, event, to, **fields, error=type(problem).__name__, message=str(problem))
