"""Fields of a network as they stand in JSON: checked, and brought into one normal form."""

from __future__ import annotations

import enum
from typing import Any

from dlv.canonical import float_of
from dlv.dtypes import DTYPES
from dlv.errors import UsageError, nearest
from dlv.network.sizes import MAX_RANK, Shape

LARGEST = 2**63 - 1
NON_FINITE = ("NaN", "Infinity", "-Infinity")


class FieldError(UsageError):
    """A field that does not hold what it should."""


class Kind(enum.Enum):
    """What an attribute holds. PER_AXIS and PAIRS have one entry for each spatial axis."""

    INT = "a whole number"
    FLOAT = "a number"
    BOOL = "true or false"
    TEXT = "a string"
    DTYPE = "a dtype"
    INTS = "a list of whole numbers"
    AXES = "an axis or a list of axes"
    SHAPE = "a list of lengths, symbols or null"
    PER_AXIS = "a whole number, or a list with one for each axis"
    PER_AXIS_OR_NULL = "a list with a whole number or null for each axis"
    PAIRS = "a whole number, or a list with a number or a [before, after] pair for each axis"

    @property
    def spatial(self) -> bool:
        return self in (Kind.PER_AXIS, Kind.PER_AXIS_OR_NULL, Kind.PAIRS)


def whole(value: Any) -> bool:
    """A JSON integer within 64 bits; true and false are none."""
    return type(value) is int and -LARGEST - 1 <= value <= LARGEST


def normal(kind: Kind, name: str, value: Any, axes: int | None = None) -> Any:
    """The normal form of an attribute: tuples for lists, floats for numbers, pairs for pads."""
    if kind is Kind.INT:
        if whole(value):
            return value
    elif kind is Kind.FLOAT:
        if type(value) is float:
            return value
        if whole(value) or (isinstance(value, str) and value in NON_FINITE):
            return float_of(value)
    elif kind is Kind.BOOL:
        if isinstance(value, bool):
            return value
    elif kind is Kind.TEXT:
        if isinstance(value, str):
            return value
    elif kind is Kind.DTYPE:
        return dtype(value, name)
    elif kind is Kind.SHAPE:
        return shape(value, name, least=-1)
    elif kind in (Kind.INTS, Kind.AXES):
        if kind is Kind.AXES and whole(value):
            return (value,)
        if isinstance(value, (list, tuple)) and all(map(whole, value)):
            return tuple(value)
    else:
        return _per_axis(kind, name, value, axes)
    raise FieldError(f"{name!r} is {shown(value)}", why=f"it takes {kind.value}")


def _per_axis(kind: Kind, name: str, value: Any, axes: int | None) -> Any:
    if whole(value):
        if axes is None:
            raise FieldError(
                f"{name!r} is one number and the number of axes is unknown",
                hint=f"write a list with one entry for each axis: [{value}, {value}]",
            )
        entries: list[Any] = [value] * axes
    elif isinstance(value, (list, tuple)):
        entries = list(value)
    else:
        raise FieldError(f"{name!r} is {shown(value)}", why=f"it takes {kind.value}")
    if (axes is not None and len(entries) != axes) or not 0 < len(entries) <= MAX_RANK:
        raise FieldError(
            f"{name!r} has {len(entries)} entries", why=f"it has {axes or 'at least 1'} axes"
        )
    for position, entry in enumerate(entries):
        if kind is Kind.PAIRS:
            pair = (entry, entry) if whole(entry) else entry
            if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not all(map(whole, pair)):
                raise FieldError(f"{name!r} is {shown(value)}", why=f"it takes {kind.value}")
            entries[position] = tuple(pair)
        elif not whole(entry) and not (entry is None and kind is Kind.PER_AXIS_OR_NULL):
            raise FieldError(f"{name!r} is {shown(value)}", why=f"it takes {kind.value}")
    return tuple(entries)


def shape(value: Any, name: str, *, least: int = 0) -> Shape:
    """A list of lengths, symbols and unknowns."""
    if not isinstance(value, (list, tuple)) or len(value) > MAX_RANK:
        raise FieldError(f"{name!r} is {shown(value)}", why=f"it takes {Kind.SHAPE.value}")
    for dim in value:
        if not (dim is None or (isinstance(dim, str) and dim) or (whole(dim) and dim >= least)):
            raise FieldError(f"{name!r} is {shown(value)}", why=f"it takes {Kind.SHAPE.value}")
    return tuple(value)


def dtype(value: Any, name: str) -> str:
    """The name of a dtype, `raw:` ones included."""
    if isinstance(value, str) and (value in DTYPES or value.startswith("raw:")):
        return value
    raise FieldError(
        f"{name!r} is {shown(value)}, which is not a dtype",
        did_you_mean=nearest(value, DTYPES) if isinstance(value, str) else (),
    )


def label(value: Any, field: str) -> str:
    """A name: text that is not empty and can be written as UTF-8."""
    if not isinstance(value, str) or not value:
        raise FieldError(f"{field} is {shown(value)}", why="it takes a string that is not empty")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FieldError(f"{field} cannot be written as UTF-8", why=str(error)) from error
    return value


def labels(value: Any, field: str) -> dict[str, str]:
    """An object from names to names."""
    if not isinstance(value, dict):
        raise FieldError(f"{field} is {shown(value)}", why="it takes an object of strings")
    return {label(key, f"a key of {field}"): label(item, field) for key, item in value.items()}


def shown(value: Any) -> str:
    """A value as it may stand in a message: not too long."""
    whole_text = repr(value[:40]) if isinstance(value, (str, list, tuple)) else repr(value)
    return whole_text if len(whole_text) <= 60 else whole_text[:59] + "…"
