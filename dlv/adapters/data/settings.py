"""The table `[data]` of a configuration, checked; and image files, read as it says."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dlv.adapters.data.columns import Column, Held
from dlv.dataclass import dataclass
from dlv.errors import Damaged, UnsafeInput, UsageError, nearest, require
from dlv.kinds import Array

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
                    f"no setting data.{key}",
                    why=f"known: {', '.join(known)}",
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


Shape = tuple[int | None, ...] | None

SUFFIXES = {
    *(".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")
}
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
MOST_PIXELS = 1 << 26
MOST_IMAGES = 1 << 24


@dataclass(frozen=True)
class Images:
    """uint8 pixels, the labels by folder, and the folders' names in order."""

    pixels: Column
    labels: Column | None
    classes: tuple[str, ...]


def read_images(folder: Path, settings: Settings, wanted: Sequence[Shape]) -> Images:
    """The images below a folder; the network's input tells grey from colour, and their axes."""
    subfolders = sorted(p for p in folder.iterdir() if p.is_dir() and p.name[:1] != ".")
    classes = settings.classes or tuple(each.name for each in subfolders)
    unknown = [each.name for each in subfolders if each.name not in classes]
    if unknown:
        raise UsageError(
            f"the folder {unknown[0]} of {folder.name} is none of data.classes",
            why=f"these are {', '.join(classes[:8])}",
        )
    found: list[tuple[Path, int]] = []
    for each in subfolders:
        number = classes.index(each.name)
        found += [(path, number) for path in _images(each)]
    labelled = bool(found)
    found += [] if labelled else [(path, -1) for path in _images(folder)]
    if not found:
        raise UsageError(
            f"{folder} has no data",
            why="neither .npy arrays nor images, which are in a subfolder for each class",
            hint="its subfolders hold .png, .jpg, .bmp, .gif, .webp, .tif, .ppm",
        )
    if len(found) > MOST_IMAGES:
        raise UnsafeInput(f"{folder} has too many images", why=str(len(found)))
    pixels = _Pixels(folder, [path for path, _ in found], settings, wanted[0] if wanted else None)
    labels = Held(f"the folders of {folder.name}", np.array([n for _, n in found], np.int64))
    labels = None if not labelled or settings.labels is False else labels  # type: ignore[assignment]
    return Images(pixels, labels, classes)


def _images(folder: Path) -> list[Path]:
    found = [p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file()]
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


class _Pixels:
    """Images as rows, all of one size; decoded whenever they are read."""

    def __init__(
        self, folder: Path, paths: Sequence[Path], settings: Settings, wanted: Shape
    ) -> None:
        self.name = f"the images of {folder.name}"
        self.count = len(paths)
        self.dtype: np.dtype[Any] = np.dtype(np.uint8)
        self._paths = paths
        self._folder = folder
        self._pillow = require("PIL.Image", "images")
        self._resize = settings.resize
        self._mode, self._axes = _form(settings.mode, wanted)
        first = self._decode(paths[0])
        self.shape: tuple[int, ...] = first.shape

    def read(self, start: int, stop: int) -> Array:
        rows = np.empty((stop - start, *self.shape), np.uint8)
        for at, path in enumerate(self._paths[start:stop]):
            image = self._decode(path)
            if image.shape != self.shape:
                raise UsageError(
                    f"{self._named(path)} has another size than the first image",
                    why=f"{_text(image.shape)} instead of {_text(self.shape)}",
                    hint="--set data.resize=32,32 brings all to one size",
                )
            rows[at] = image
        return rows

    def _named(self, path: Path) -> str:
        return path.relative_to(self._folder).as_posix()

    def _decode(self, path: Path) -> Array:
        pillow = self._pillow
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of sizes, which are looked at here
                with pillow.open(path, formats=_FORMATS) as image:
                    if image.width * image.height > MOST_PIXELS:
                        raise UnsafeInput(
                            f"{self._named(path)} is too large",
                            why=f"{image.width} x {image.height} pixels",
                        )
                    made = image.convert(self._mode)
                    if self._resize is not None:
                        height, width = self._resize
                        made = made.resize((width, height), pillow.Resampling.BILINEAR)
                    array = np.asarray(made, np.uint8)
        except (OSError, ValueError, SyntaxError, EOFError) as error:
            raise Damaged(f"{self._named(path)} is not an image", why=str(error)[:200]) from error
        except pillow.DecompressionBombError as error:
            raise UnsafeInput(f"{self._named(path)} is too large", why=str(error)) from error
        if self._axes == "none":
            return array
        array = array.reshape((*array.shape[:2], -1))
        return np.ascontiguousarray(array.transpose(2, 0, 1)) if self._axes == "first" else array


def _form(mode: str | None, wanted: Shape) -> tuple[str, str]:
    """Pillow's mode, and where the channels stand, for what a network takes."""
    by_channels = {1: "L", 3: "RGB"}
    if wanted is not None and len(wanted) == 3:
        first, last = by_channels.get(wanted[0] or 0), by_channels.get(wanted[2] or 0)
        if first or not last:
            return mode or first or "RGB", "first"
        return mode or last, "last"
    if wanted is not None and len(wanted) == 2:
        return mode or "L", "none"
    return mode or "RGB", "first"


def _text(shape: Sequence[int]) -> str:
    return "×".join(str(side) for side in shape)
