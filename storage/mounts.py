"""Mounts of network file systems on Linux.

They are not safe for tables.
"""

from __future__ import annotations

import os
import re

MOUNTINFO = "/proc/self/mountinfo"
_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\d|smbfs|ncpfs|afs|ceph|lustre|beegfs|gpfs|orangefs|pvfs2|coda|davfs"
    r"|fuse\.(sshfs|s3fs|s3backer|gcsfuse|goofys|geesefs|rclone|mount-s3|mountpoint-s3|blobfuse2?|glusterfs|ceph(-fuse)?|cephfs|juicefs|davfs2?|smbnetfs|curlftpfs|hdfs|alluxio.*|weed.*|seaweedfs)"
)


def detect_network_file_system(path: str) -> str:
    """Detect the network file system of a path.

    Returns its type, such as 'nfs4', or ''. `path` need not exist.
    """
    try:
        with open(MOUNTINFO, encoding="utf-8", errors="surrogateescape") as file:
            kind = _file_system_type(os.path.realpath(path), file.read())
    except OSError:
        return ""
    return kind if _NETWORK.fullmatch(kind) else ""


def _file_system_type(path: str, mountinfo: str) -> str:
    # The mount with the longest mount point above `path` decides, and the newest mount if several have the same mount
    # point. See proc_pid_mountinfo(5).
    best, kind = "", ""
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        above = path == point or path.startswith(point.rstrip("/") + "/")
        if above and len(point) >= len(best):
            best, kind = point, after.split(" ")[0]
    return kind
