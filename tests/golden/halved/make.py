"""Golden packs of the layout `halved`: hard values, odd shapes, several segments, a delta on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from dlv.pas.floats import format_of
from dlv.pas.layouts.fixed import Fixed, Halved
from tests.golden.weights.make import Maker, Matrix, special, weights

VERSION = "1"  # of the format


def layouts(folder: Path) -> tuple[str, dict[str, Any]]:
    maker = Maker(folder, "halved.pack")
    for seed, dtype in enumerate(("float32", "float64", "float16", "bfloat16"), 1000):
        for rows in ("first", "last"):
            held = special(weights(dtype, (13, 3, 15), seed + 5 * len(rows)), seed, finite=True)
            held.words[45:90] = 0  # a row of zeros, with signs
            held.words[50] = format_of(dtype).top
            maker.add(held, layout=Halved(rows, rows == "last"))
            odd = weights(dtype, (31,), seed + 20 * len(rows))
            maker.add(odd, layout=Halved(rows, False))
        maker.add(weights(dtype, (), seed + 40), layout=Halved("first", True))
        below = weights(dtype, (9, 7), seed + 60)
        maker.add(below, layout=Halved("first", False))
        moved = np.random.default_rng(seed).integers(0, 8, len(below.words))
        above = Matrix(dtype, below.shape, below.words ^ moved.astype(below.words.dtype))
        raws = [each.words.tobytes() for each in (below, above)]
        shared = Fixed.of(raws, dtype, below.shape)
        maker.add(above, layout=shared, kind="xor", base=below)
    return maker.finish()


def segments(folder: Path) -> tuple[str, dict[str, Any]]:
    """More than one segment, nearly all elements alike."""
    maker = Maker(folder, "segments.pack")
    shape = (1031, 1023)
    words = np.full(1031 * 1023, 0x2C00, "<u2")
    places = np.random.default_rng(1100).choice(len(words), 300, replace=False)
    words[places] = 0x1801
    words[:1023] = 0
    target = Matrix("float16", shape, words)
    maker.add(target, layout=Halved("first", False), codecs=["zstd"])
    return maker.finish()


def make(folder: Path) -> None:
    found = dict(made(folder) for made in (layouts, segments))
    (folder / "contents.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
