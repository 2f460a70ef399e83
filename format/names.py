"""Names of data files, instants and meta columns of Apache Hudi tables."""

from __future__ import annotations

import datetime as dt
import re
from typing import NamedTuple

from hoodoo.errors import CorruptTable

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"
META_COLUMNS = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)
IS_DELETED = "_hoodie_is_deleted"
"""Boolean column of an upsert batch that marks rows to delete."""

PARTITION_METADATA = ".hoodie_partition_metadata"

_BASE = re.compile(r"^(?P<file_id>[^._][^_]*)_(?P<token>\d+-\d+-\d+)_(?P<instant>\d{14}|\d{17})\.parquet$")
_LOG = re.compile(
    r"^\.(?P<file_id>[^._]+)_(?P<instant>\d{14}|\d{17})\.log\.(?P<version>\d+)(?:_(?P<token>\d+-\d+-\d+))?(?P<cdc>\.cdc)?$"
)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


class BaseName(NamedTuple):
    """Parts of the name of a base file: file group id, write token and instant."""

    file_id: str
    token: str
    instant: str


class LogName(NamedTuple):
    """Parts of the name of a log file."""

    file_id: str
    instant: str
    version: int
    token: str
    cdc: bool


def base_file_name(file_id: str, instant: str, token: str = "0-0-0") -> str:
    """Return the name of a base file: `<fileId>_<writeToken>_<instant>.parquet`.

    The write token is always the same, so that a retried task finds the file of its earlier attempt.
    """
    return f"{file_id}_{token}_{instant}.parquet"


def log_file_name(file_id: str, instant: str, version: int = 1, token: str = "0-0-0") -> str:
    """Return the name of a log file: `.<fileId>_<instant>.log.<version>_<writeToken>`."""
    return f".{file_id}_{instant}.log.{version}_{token}"


def change_log_name(file_id: str, instant: str, token: str = "0-0-0") -> str:
    """Return the name of the change log for the base file that `instant` wrote."""
    return f"{log_file_name(file_id, instant, 1, token)}.cdc"


def is_change_log(path: str) -> bool:
    """Return whether a path is the path of a change log."""
    parsed = parse_data_file(path.rpartition("/")[2])
    return isinstance(parsed, LogName) and parsed.cdc


def parse_data_file(name: str) -> BaseName | LogName | None:
    """Parse the name of a base file or log file, or return None for any other name."""
    if m := _BASE.match(name):
        return BaseName(m["file_id"], m["token"], m["instant"])
    if m := _LOG.match(name):
        return LogName(m["file_id"], m["instant"], int(m["version"]), m["token"] or "", bool(m["cdc"]))
    return None


def join(partition: str, name: str) -> str:
    """Join a partition path and a file name to a path relative to the table."""
    return f"{partition}/{name}" if partition else name


def check_relative(path: str) -> str:
    """Check that a path is inside the table folder, and return it.

    A stored path outside of the table is damage or an attack.
    """
    if (
        not path
        or path.startswith("/")
        or "\\" in path
        or "\0" in path
        or "://" in path
        or any(s in ("", ".", "..") for s in path.split("/"))
    ):
        raise CorruptTable(
            (
                f"Path {path!r} in the table's metadata is not a relative path inside the table. Nothing was read or "
                "deleted. Restore the metadata from a backup."
            ),
            path=path,
        )
    return path


def check_data_path(path: str) -> str:
    """Check that a path is that of a data file inside the table, and return it."""
    if check_relative(path).startswith(".hoodie/") or parse_data_file(path.rpartition("/")[2]) is None:
        raise CorruptTable(
            f"Path {path!r} in the table's metadata is not the path of a data file. Nothing was read or deleted. "
            "Restore the metadata from a backup.",
            path=path,
        )
    return path


def check_below(path: str, *folders: str) -> str:
    """Check that a path is in one of some folders of the table, and return it."""
    if not check_relative(path).startswith(folders):
        raise CorruptTable(
            (
                f"Path {path!r} in the table's metadata is not in {' or '.join(folders)}. Nothing was read or deleted. "
                "Restore the metadata from a backup."
            ),
            path=path,
        )
    return path


def instant_of_ms(ms: int) -> str:
    """Convert milliseconds since 1970 (UTC) to an instant of 17 digits: `yyyyMMddHHmmssSSS`."""
    moment = _EPOCH + dt.timedelta(milliseconds=ms)
    return moment.strftime("%Y%m%d%H%M%S") + f"{ms % 1000:03d}"


def ms_of_instant(instant: str) -> int:
    """Convert an instant to milliseconds since 1970 (UTC).

    An instant of 14 digits means the end of its second, as in Hudi's comparisons.
    """
    text = instant if len(instant) == 17 else instant + "999"
    moment = dt.datetime.strptime(text[:14], "%Y%m%d%H%M%S").replace(tzinfo=dt.timezone.utc)
    return int((moment - _EPOCH).total_seconds()) * 1000 + int(text[14:])
