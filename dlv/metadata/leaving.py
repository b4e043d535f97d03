"""Connections that could not be opened whole, and must not take their log with them."""

from __future__ import annotations

import ctypes
import sqlite3
import sys

from dlv.errors import StorageError


def give_up(connection: sqlite3.Connection, error: BaseException) -> None:
    """Close a connection that is of no use; if the disk is at fault, as a killed process would."""
    if isinstance(error, StorageError):
        leave(connection)
    else:
        connection.close()


def leave(connection: sqlite3.Connection) -> None:
    """Let go of a connection, and touch no file.

    Where a disk refuses to open the shared memory of a WAL for writing, SQLite (3.40 at least)
    closes the last connection by a checkpoint that finds nothing to do, and deletes the WAL with
    all commits in it. A WAL that is left lying is recovered by whoever opens the file next.
    """
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
        connection.close()
    else:
        # The end of the process must close it: nothing else keeps an object from being released,
        # and so closed, when the interpreter ends.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
