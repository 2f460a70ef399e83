"""The call of a user's transform: what it raises becomes an error that names the source and the line.

It knows nothing of tables, and not what the rows become.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from hoodoo.errors import DataError, HoodooError
from hoodoo.redact import printable, redact


def called(transform: Callable[[pa.Table], Any], rows: pa.Table, source: str) -> Any:
    """Call a transform.

    Args:
        transform: The function.
        rows: What was read.
        source: The name of the source that they are of.

    Returns:
        What the function returns, whatever that is.

    Raises:
        DataError: It raises; `details` has `source`, and `file` and `line` of the function where it is written in
            Python. An error of hoodoo goes through as it is.
    """
    try:
        return transform(rows)
    except HoodooError:
        raise
    except Exception as problem:
        what = f"{type(problem).__name__}: {' '.join(redact(str(problem)).split())[:500]}"
        file, line = _place(problem)
        where = f" in {file}, line {line}," if file else ""
        raise DataError(
            f"transform raised {what}{where} on rows of {printable(source)}. Nothing of this batch is written.",
            source=source,
            file=file,
            line=line,
        ) from problem


def _place(problem: Exception) -> tuple[str, int]:
    """The last line of the function's own file that was at work; ('', 0) where the function is none of Python."""
    below = traceback.extract_tb(problem.__traceback__)[1:]  # the first one is ours
    own = [frame for frame in below if frame.filename == below[0].filename]
    return (own[-1].filename, own[-1].lineno or 0) if own else ("", 0)


__all__ = ["called"]
