"""What kind of file system a folder lies on, as far as the kernel tells."""

from __future__ import annotations

import os
import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
_NETWORK_DISKS = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre"),
    *("gpfs", "beegfs", "wekafs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs"),
}


def network_disk(path: Path, mounts: Path = MOUNTS) -> bool:
    """Whether the repository lies where SQLite's WAL is unsafe."""
    return file_system(path, mounts) in _NETWORK_DISKS


def file_system(path: Path, mounts: Path = MOUNTS) -> str | None:
    """The type of file system that holds `path`, as the kernel names it."""
    try:
        lines = mounts.read_bytes().splitlines()
    except OSError:
        return None
    best, kind = "", None
    target = os.path.realpath(path)
    for line in lines:
        left, _, right = line.partition(b" - ")
        # Blanks and backslashes are octal there, all else stands as it is.
        raw = re.sub(rb"\\([0-7]{3})", lambda digits: bytes([int(digits[1], 8)]), left.split()[4])
        point = os.fsdecode(raw)
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, os.fsdecode(right.split()[0])
    return kind
