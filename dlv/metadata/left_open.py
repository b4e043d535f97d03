"""Connections that had better not be closed."""

from __future__ import annotations

import ctypes
import sqlite3


def leave_open(connection: sqlite3.Connection) -> None:
    """Let the end of the process close it, as if the process had been killed.

    Where a disk refuses to open the shared memory of a WAL for writing, SQLite (3.40 at least)
    closes the last connection by a checkpoint that finds nothing to do, and deletes the WAL with
    all commits in it. A WAL that is left lying is recovered by whoever opens the file next.
    """
    # Nothing else keeps an object from being released, and so closed, when the interpreter ends.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
