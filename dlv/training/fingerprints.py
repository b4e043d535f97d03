"""Fingerprints of data, kept as long as files look the same: by size, time and inode."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dlv.disk.durable as durable
from dlv.canonical import hash_of
from dlv.errors import DlvError, NotFound

CACHE = "fingerprints.json"  # its usual name
# A file that was changed so shortly before it was read may change again without a trace.
_FRESH = 2_000_000_000
_MOST_KEPT = 1000


class Fingerprints:
    """`content` reads a file or folder whole; what it found is kept in the file `cache`."""

    def __init__(self, cache: Path, content: Callable[[Path], str]) -> None:
        self._cache = cache
        self._content = content

    def __call__(self, path: Path) -> str:
        """The fingerprint of a file's content, or of a folder's files."""
        key = str(path.absolute())
        seen, newest = _look(path)
        kept = self._read()
        row = kept.get(key)
        if isinstance(row, list) and len(row) == 2 and row[0] == seen and isinstance(row[1], str):
            return row[1]
        begun = time.time_ns()
        found = self._content(path)
        if newest + _FRESH < begun and _look(path)[0] == seen:
            kept = {**self._read(), key: [seen, found]}
            self._write(dict(list(kept.items())[-_MOST_KEPT:]))
        return found

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._cache.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, entries: dict[str, Any]) -> None:
        try:
            tmp = durable.make_directory(self._cache.parent / "tmp")
            durable.replace(self._cache, json.dumps(entries).encode(), tmp_dir=tmp)
        except DlvError:
            return  # it only saves time


def _look(path: Path) -> tuple[str, int]:
    """What size, time and inode of all files come to, and the newest of their times."""
    try:
        if not path.is_dir():
            rows, newest = [_row(path, path.name)], path.stat().st_mtime_ns
        else:
            files = sorted(each for each in path.rglob("*") if each.is_file())
            rows = [_row(each, each.relative_to(path).as_posix()) for each in files]
            newest = max((row[2] for row in rows), default=0)
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}", why="config.input_data names it") from None
    except OSError as error:
        raise durable.storage_error("read", path, error) from error
    return hash_of(rows), newest


def _row(path: Path, name: str) -> list[Any]:
    seen = path.stat()
    return [os.fsencode(name).hex(), seen.st_size, seen.st_mtime_ns, seen.st_ino]
