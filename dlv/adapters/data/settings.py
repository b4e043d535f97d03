"""The table `[data]` of a configuration, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from dlv.errors import UsageError, nearest

INPUT_KEYS = (
    *("x", "X", "data", "images", "inputs", "features", "x_test", "X_test", "test_x"),
    *("test_images", "image", "input"),
)
LABEL_KEYS = (
    *("y", "Y", "labels", "targets", "y_test", "Y_test", "test_y", "test_labels"),
    *("label", "target"),
)
MODES = ("L", "RGB")


@dataclass(frozen=True)
class Settings:
    """How rows are read, and what is done to them before the network sees them.

    `labels`: the array, column or file that holds them; None: by the usual names; False: there
    are none. `inputs`: the array of each input, "" for the only one. `rows`: so many, the first.
    """

    inputs: Mapping[str, str] = field(default_factory=dict)
    labels: str | Literal[False] | None = None
    classes: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    shape: tuple[int, ...] | None = None
    transpose: tuple[int, ...] | None = None
    scale: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    resize: tuple[int, int] | None = None
    mode: str | None = None
    rows: int | None = None

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Settings:
        """The checked settings; UsageError names the key."""
        known = [each.name for each in fields(cls)]
        for key in table:
            if key not in known:
                raise UsageError(
                    f"there is no setting data.{key}",
                    why=f"there are {', '.join(known)}",
                    did_you_mean=[f"data.{near}" for near in nearest(key, known)],
                )
        return cls(**{key: _READ[key](key, value) for key, value in table.items()})

    def as_json(self) -> dict[str, Any]:
        """The settings that differ from the defaults; equal ones mean the same rows."""
        usual = Settings()
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in said.items()
            if value != getattr(usual, key)
        }


def _wrong(key: str, value: Any, wanted: str) -> UsageError:
    return UsageError(f"data.{key} is {value!r}"[:200], why=f"it must be {wanted}")


def _inputs(key: str, value: Any) -> Mapping[str, str]:
    if isinstance(value, str):
        return {"": value}
    if isinstance(value, Mapping) and all(isinstance(v, str) for v in value.values()):
        return dict(value)
    raise _wrong(key, value, "the name of an array, or a table of input = array")


def _labels(key: str, value: Any) -> str | Literal[False]:
    if value is False or value in ("none", "false"):
        return False
    if isinstance(value, str) and value:
        return value
    raise _wrong(key, value, "a name, or false")


def _texts(key: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.split(",")
    if isinstance(value, Sequence) and value and len({str(v) for v in value}) == len(value):
        return tuple(str(each) for each in value)
    raise _wrong(key, value, "a list of different names")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _ints(key: str, value: Any) -> tuple[int, ...]:
    value = [value] if _whole(value) else value
    if isinstance(value, Sequence) and value and all(_whole(v) and 0 <= v < 1 << 31 for v in value):
        return tuple(value)
    raise _wrong(key, value, "a list of whole numbers, as 1,28,28")


def _size(key: str, value: Any) -> tuple[int, int]:
    sides = _ints(key, value)
    if len(sides) <= 2 and all(1 <= side <= 1 << 14 for side in sides):
        return sides[0], sides[-1]
    raise _wrong(key, value, "a height and a width, as 32,32")


def _number(key: str, value: Any) -> float:
    if isinstance(value, str) and value.startswith("1/"):
        try:
            return 1 / float(value[2:])
        except (ValueError, ZeroDivisionError):
            pass
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise _wrong(key, value, "a number that rows are multiplied with, as 1/255")


def _numbers(key: str, value: Any) -> tuple[float, ...]:
    given = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if given and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in given):
        return tuple(float(each) for each in given)
    raise _wrong(key, value, "a number, or one for each channel")


def _std(key: str, value: Any) -> tuple[float, ...]:
    found = _numbers(key, value)
    if all(each > 0 for each in found):
        return found
    raise _wrong(key, value, "above 0")


def _mode(key: str, value: Any) -> str:
    if value in MODES:
        return str(value)
    raise _wrong(key, value, "L (grey) or RGB")


def _rows(key: str, value: Any) -> int:
    if _whole(value) and value > 0:
        return int(value)
    raise _wrong(key, value, "a number of rows")


_READ: Mapping[str, Any] = {
    "inputs": _inputs,
    "labels": _labels,
    "classes": _texts,
    "columns": _texts,
    "shape": _ints,
    "transpose": _ints,
    "scale": _number,
    "mean": _numbers,
    "std": _std,
    "resize": _size,
    "mode": _mode,
    "rows": _rows,
}
