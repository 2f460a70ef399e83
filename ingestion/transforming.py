"""Call of a user's transform function."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from hoodoo.errors import DataError, HoodooError
from hoodoo.redact import printable, redact


def call_transform(transform: Callable[[pa.Table], Any], rows: pa.Table, source: str) -> Any:
    """Call the user's transform function.

    An exception becomes a DataError with its location.

    Args:
        transform: The function of the user.
        rows: The rows of the batch.
        source: The name of the source, for errors.

    Returns:
        The result of the function, of any type.

    Raises:
        DataError: The function raised an exception. `details` contains `source`, and `file` and `line` of a Python
            function. An error of hoodoo is raised unchanged.
    """
    try:
        return transform(rows)
    except HoodooError:
        raise
    except Exception as problem:
        description = f"{type(problem).__name__}: {' '.join(redact(str(problem)).split())[:500]}"
        file, line = _last_executed_line(problem)
        where = f" in {file}, line {line}," if file else ""
        raise DataError(
            f"transform raised {description}{where} on rows of {printable(source)}. Nothing of this batch was "
            "written. Correct the transform.",
            source=source,
            file=file,
            line=line,
        ) from problem


def _last_executed_line(problem: Exception) -> tuple[str, int]:
    # Returns ('', 0) if the function is not a Python function.
    frames = traceback.extract_tb(problem.__traceback__)[1:]  # the first frame is this module
    own_frames = [frame for frame in frames if frame.filename == frames[0].filename]
    return (own_frames[-1].filename, own_frames[-1].lineno or 0) if own_frames else ("", 0)


__all__ = ["call_transform"]
