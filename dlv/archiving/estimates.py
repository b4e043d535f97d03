"""Estimated sizes of encodings, from sketches: a few elements of a matrix and of its base.

The plain difference of a sketch is coded like that of the matrix, which is within a few percent.
How much predictors and contexts save is only known once the matrix is coded.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from dlv.archiving.tryouts import Choice, Tried
from dlv.pas.coders.numbers import NumbersCodec
from dlv.pas.floats import Words, differences, format_of, signed_words
from dlv.pas.footer import Encoding
from dlv.pas.layouts.segments import SEGMENT, raw_of, words_of

Effort = Literal["fast", "normal", "high"]

# The share of the plain difference that contexts and predictors leave: .77 to .91 on models.
IN_CONTEXT = 0.86


def difference_share(target: Words, base: Words, dtype: str) -> float:
    """The part of its bytes that the plain difference of a matrix would take."""
    form = format_of(dtype)
    digits = signed_words(differences(target, base, form), form)
    raw = raw_of(digits.view(form.words))
    return len(NumbersCodec(form.width).encode(raw)) / max(1, len(raw))


def alone_share(words: Words, dtype: str) -> float:
    """The part of its bytes that a matrix would take by itself: entropies of its bytes."""
    width, _ = words_of(dtype)
    planes = words.view(np.uint8).reshape(-1, width)
    if not len(planes):
        return 1.0
    bits = 0.0
    for plane in range(width):
        counts = np.bincount(planes[:, plane])
        used = counts[counts > 0] / len(planes)
        bits += min(8.0, -float((used * np.log2(used)).sum()))
    return min(1.0, bits / (8 * width))


def estimated(choice: Choice, encoding: Encoding, share: float) -> Tried:
    """The expected outcome of a choice that takes this share of the matrix's bytes."""
    raw = encoding.size
    width, _ = words_of(encoding.dtype)
    segments = -(-raw // (width * SEGMENT))
    planes = {"sub": 1, "context": max(1, width // 2)}.get(choice.kind, width)
    parts = segments * planes + (choice.kind == "context")
    return Tried(encoding, round(raw * share), parts, exact=False)
