"""Python functions that SQL may call, and what they raise: SQLite only says that one failed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

_STEPS = 20_000  # of SQLite's machine, between two looks whether Ctrl-C came

_INTERRUPTED = ("interrupted", "user-defined function raised", "user-defined aggregate's ")

Functions = Mapping[str, Callable[..., Any]]
Aggregates = Mapping[str, Callable[[], Any]]


class Calls:
    """The functions that a connection was given, and the first thing that one of them raised."""

    def __init__(self) -> None:
        self._raised: BaseException | None = None
        self._known: dict[str, Callable[..., Any]] = {}

    def register(
        self, connection: sqlite3.Connection, functions: Functions, aggregates: Aggregates
    ) -> None:
        """A name stays what it is: SQLite changes none while a statement runs."""
        for name, function in functions.items():
            if name not in self._known:
                connection.create_function(name, -1, self._told(function), deterministic=True)
                self._known[name] = function
        for name, made in aggregates.items():
            if name not in self._known:
                connection.create_aggregate(name, -1, self._aggregate(made))
                self._known[name] = made
        # Without it SQLite would not notice Ctrl-C before the next row.
        connection.set_progress_handler(lambda: 0, _STEPS)

    def forget(self, connection: sqlite3.Connection, names: Iterable[str]) -> None:
        """Of what no statement speaks any more."""
        for name in names:
            if self._known.pop(name, None) is not None:
                with suppress(sqlite3.OperationalError):  # another statement runs
                    connection.create_function(name, -1, None)

    def raised(self, error: Exception) -> BaseException | None:
        """What it was, once. Ctrl-C may come before a function has even begun."""
        found, self._raised = self._raised, None
        if found is None and str(error).startswith(_INTERRUPTED):
            return KeyboardInterrupt()
        return found

    def _told(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any) -> Any:
            try:
                return function(*given)
            except BaseException as error:
                self._raised = self._raised or error
                raise

        return called

    def _aggregate(self, made: Callable[[], Any]) -> Any:
        told = self._told

        class Aggregate:
            def __init__(self) -> None:
                aggregate = told(made)()
                self.step = told(aggregate.step)
                self.finalize = told(aggregate.finalize)

        return Aggregate
