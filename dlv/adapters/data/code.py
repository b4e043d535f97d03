"""Rows from the user's own code: `python:module:function`, run because the user named it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import dlv.own_code as own_code
from dlv.adapters.data.columns import Column, Held, Spooled
from dlv.errors import DlvError, NotFound, UsageError, nearest

PREFIX = "python:"


@dataclass(frozen=True)
class Called:
    """The result of a function as named columns, and the `fingerprint` that it states, if any."""

    columns: dict[str, Column]
    fingerprint: str | None


def load(where: str, directory: Path) -> Any:
    """The function: its module is imported, from this directory first."""
    _, module_name, function_name, *rest = [*where.split(":"), "", ""]
    if not module_name or not function_name or any(rest):
        raise UsageError(
            f"`{where}` is not of the form python:module:function",
            why="the module is one that `import` finds from here",
        )
    return _function(own_code.module(module_name, directory), function_name, module_name)


def call(where: str, directory: Path) -> Called:
    """Import the module, from this directory first, and call the function once."""
    function = load(where, directory)
    return Called(called(function, where), stated_fingerprint(function))


def called(function: Any, where: str) -> dict[str, Column]:
    """The result of a function, called once, as named columns."""
    try:
        made = function()
        return columns_of(made, where)
    except DlvError:
        raise
    except Exception as error:
        said = str(error).partition("\n")[0]
        raise UsageError(f"{where} failed", why=f"{type(error).__name__}: {said}"[:300]) from error


def stated_fingerprint(function: Any) -> str | None:
    """The fingerprint that a function says its data has."""
    found = getattr(function, "fingerprint", None)
    return str(found() if callable(found) else found) if found is not None else None


def _function(module: ModuleType, name: str, module_name: str) -> Any:
    found = getattr(module, name, None)
    if not callable(found):
        known = [each for each in vars(module) if each[0] != "_" and callable(vars(module)[each])]
        raise NotFound(f"{module_name} has no function `{name}`", did_you_mean=nearest(name, known))
    return found


def columns_of(returned: Any, where: str) -> dict[str, Column]:
    """x, (x, y), arrays by name, or an iterator over batches of these, as named columns."""
    if isinstance(returned, Mapping):
        return {str(name): Held(f"{name} of {where}", _array(v)) for name, v in returned.items()}
    if isinstance(returned, tuple) and len(returned) == 2:
        return {name: Held(f"{name} of {where}", _array(v)) for name, v in zip("xy", returned)}  # noqa: B905
    if isinstance(returned, Iterator):
        return _spooled(returned, where)
    return {"x": Held(f"x of {where}", _array(returned))}


def _spooled(batches: Iterator[Any], where: str) -> dict[str, Column]:
    """Batches of (x, y) or of x one after the other, kept so that they can be read again."""
    found: dict[str, Spooled] = {}
    for number, batch in enumerate(batches):
        parts = batch if isinstance(batch, tuple) else (batch,)
        rows = {name: _array(part) for name, part in zip("xy", parts, strict=False)}
        if not number:
            found = {n: Spooled(f"{n} of {where}", r.dtype, r.shape[1:]) for n, r in rows.items()}
        if rows.keys() != found.keys() or len(parts) > 2:
            raise UsageError(f"batch {number} of {where} differs from the first")
        for name, each in rows.items():
            column = found[name]
            fits = np.can_cast(each.dtype, column.dtype, "same_kind")
            if each.shape[1:] != column.shape or not fits:
                raise UsageError(f"batch {number} of {where} differs from the first")
            column.add(each)
    return dict(found)


def _array(value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype.kind not in "biufUS" or not array.ndim:
        raise UsageError(
            f"an array of {array.dtype} with {array.ndim} axes is no column of rows",
            why="the function returns x, (x, y), a dict of arrays, or yields batches of these",
        )
    return array
