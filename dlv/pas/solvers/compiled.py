"""The solvers' loops (tree.py, greedy.py, moves.py), compiled where numba is installed.

Compiled functions work on arrays; without numba the same functions work on lists, which plain
Python reads faster. Nothing but the time taken depends on which of the two runs.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import cache
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from dlv.errors import UsageError, require
from dlv.kinds import Longs
from dlv.pas.solvers import greedy, moves, tree

# Loading numba takes as long as solving a graph of this many edges does without it.
WORTH_IT = 20_000
FILES = (tree, greedy, moves)  # each uses those before it
force: list[bool] = []  # tests: [True] or [False]


class Loops:
    """The functions, and the kind of sequence they want."""

    def __init__(self, compiled: Any | None) -> None:
        self.compiled = compiled is not None
        self.run: Any = _plain() if compiled is None else compiled

    def sequence(self, values: Any) -> Any:
        return values.copy() if self.compiled else values.tolist()

    def zeros(self, count: int) -> Any:
        return np.zeros(count, np.int64) if self.compiled else [0] * count


def loops(edges: int) -> Loops:
    """For a graph of so many edges."""
    wanted = force[0] if force else edges >= WORTH_IT
    return Loops(_compiled() if wanted else None)


def longs(sequence: Any) -> Longs:
    if isinstance(sequence, list):  # of Python's numbers: an array of its own reads them faster
        return np.frombuffer(array("q", sequence), np.int64)
    return np.array(sequence, np.int64)


@cache
def _compiled() -> Any | None:
    try:
        numba = require("numba", "fast")
    except UsageError:
        return None
    # Copies whose globals are each other's compiled forms; the plain functions stay as they are.
    made = SimpleNamespace()
    for module in FILES:
        names = {**vars(module), **vars(made)}
        for name, function in _functions(module):
            copy = FunctionType(function.__code__, names, name)
            names[name] = _compile(numba, copy)
            setattr(made, name, names[name])
    return made


@cache
def _plain() -> Any:
    return SimpleNamespace(**{name: f for module in FILES for name, f in _functions(module)})


def _functions(module: ModuleType) -> list[tuple[str, FunctionType]]:
    """Those that the file defines itself."""
    found = [(n, f) for n, f in vars(module).items() if isinstance(f, FunctionType)]
    return [(n, f) for n, f in found if f.__module__ == module.__name__]


def _compile(numba: Any, function: Callable[..., Any]) -> Any:
    try:
        return numba.njit(function, cache=True)
    except RuntimeError:  # no folder that the compiled code could be kept in
        return numba.njit(function)
