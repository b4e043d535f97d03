"""Images in a folder, a subfolder per class: decoded by Pillow (extra `images`), one by one."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dlv.adapters.data.columns import Column, Held
from dlv.adapters.data.settings import Settings
from dlv.errors import Damaged, UnsafeInput, UsageError, require
from dlv.kinds import Array

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


def read(folder: Path, settings: Settings, wanted: Sequence[Shape]) -> Images:
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
            f"{folder} holds no data",
            why="neither .npy arrays nor images, which lie in a subfolder for each class",
            hint="its subfolders hold .png, .jpg, .bmp, .gif, .webp, .tif, .ppm",
        )
    if len(found) > MOST_IMAGES:
        raise UnsafeInput(f"{folder} holds too many images", why=str(len(found)))
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
            raise Damaged(f"{self._named(path)} is no image", why=str(error)[:200]) from error
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
