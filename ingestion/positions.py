"""Storage of long source positions.

The position of a folder lists every file that was read, which may be thousands. The file is written before the commit
that refers to it. Orphan removal deletes files that no position refers to (compactor/cleaning/sweep.py).
"""

from __future__ import annotations

import hashlib
import zlib

from hoodoo.errors import CorruptTable, OptionError
from hoodoo.storage.store import Store
from hoodoo.timeline.layout import position_key

_WHOLE_MAX = 16 << 10  # maximum bytes of a position that is stored in the slot
_NAMED = "sha256:"


def store_position(store: Store, position: str) -> str:
    """Store a source position for a commit.

    Returns the position itself, or the digest of a file for a long position. Raises OptionError if the position begins
    with 'sha256:'.
    """
    if position.startswith(_NAMED):
        raise OptionError(
            f"Position is invalid: expected a string that does not begin with {_NAMED!r}, which marks the "
            "name of a file. Change the source.",
            option="position",
        )
    data = position.encode()
    if len(data) <= _WHOLE_MAX:
        return position
    name = _NAMED + hashlib.sha256(data).hexdigest()
    # rewritten even if it exists, because orphan removal deletes old files
    store.put(str(position_key(name)), zlib.compress(data))
    return name


def load_position(store: Store, position: str) -> str:
    """Load a stored source position.

    Raises CorruptTable if its file is damaged.
    """
    key = position_key(position)
    if key is None:
        return position
    try:
        data = zlib.decompress(store.get(key))
    except (FileNotFoundError, zlib.error):
        data = b""
    if _NAMED + hashlib.sha256(data).hexdigest() != position:
        raise CorruptTable(
            f"Position file {key} of a job is missing or damaged. Restore the file from a backup. To read the source "
            "from the beginning, give the job another name.",
            file=key,
        )
    return data.decode()
