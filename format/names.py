"""Names of files and columns in Hudi tables."""

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


class BaseFileName(NamedTuple):
    file_id: str
    token: str
    instant: str


class LogFileName(NamedTuple):
    file_id: str
    instant: str
    version: int
    token: str
    cdc: bool


def base_file_name(file_id: str, instant: str, token: str = "0-0-0") -> str:
    """Return the name of a base file.

    The write token is always the same, so that a retried task finds the file of its earlier attempt.
    """
    return f"{file_id}_{token}_{instant}.parquet"


def log_file_name(file_id: str, instant: str, version: int = 1, token: str = "0-0-0") -> str:
    return f".{file_id}_{instant}.log.{version}_{token}"


def change_log_name(file_id: str, instant: str, token: str = "0-0-0") -> str:
    return f"{log_file_name(file_id, instant, 1, token)}.cdc"


def is_change_log_path(path: str) -> bool:
    parsed = parse_data_file(path.rpartition("/")[2])
    return isinstance(parsed, LogFileName) and parsed.cdc


def parse_data_file(name: str) -> BaseFileName | LogFileName | None:
    if m := _BASE.match(name):
        return BaseFileName(m["file_id"], m["token"], m["instant"])
    if m := _LOG.match(name):
        return LogFileName(m["file_id"], m["instant"], int(m["version"]), m["token"] or "", bool(m["cdc"]))
    return None


def join(partition: str, name: str) -> str:
    return f"{partition}/{name}" if partition else name


def require_relative_path(path: str) -> str:
    """Check that a path is inside the table folder.

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


def require_data_file_path(path: str) -> str:
    if require_relative_path(path).startswith(".hoodie/") or parse_data_file(path.rpartition("/")[2]) is None:
        raise CorruptTable(
            f"Path {path!r} in the table's metadata is not the path of a data file. Nothing was read or deleted. "
            "Restore the metadata from a backup.",
            path=path,
        )
    return path


def require_path_in_folders(path: str, *folders: str) -> str:
    if not require_relative_path(path).startswith(folders):
        raise CorruptTable(
            (
                f"Path {path!r} in the table's metadata is not in {' or '.join(folders)}. Nothing was read or deleted. "
                "Restore the metadata from a backup."
            ),
            path=path,
        )
    return path


def instant_of_ms(ms: int) -> str:
    moment = _EPOCH + dt.timedelta(milliseconds=ms)
    return moment.strftime("%Y%m%d%H%M%S") + f"{ms % 1000:03d}"


def ms_of_instant(instant: str) -> int:
    """Convert a Hudi instant to milliseconds since 1970.

    An instant of 14 digits means the end of its second, as in Hudi's comparisons.
    """
    text = instant if len(instant) == 17 else instant + "999"
    moment = dt.datetime.strptime(text[:14], "%Y%m%d%H%M%S").replace(tzinfo=dt.timezone.utc)
    return int((moment - _EPOCH).total_seconds()) * 1000 + int(text[14:])
