"""Predicts time and size of an archive by encoding a block of rows of some tensors."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from dlv.archiving.speeds import Speeds
from dlv.archiving.tryouts import Choice, Tried
from dlv.dataclass import dataclass
from dlv.kinds import Raw
from dlv.pas.coders import small
from dlv.pas.coders.contexts import view
from dlv.pas.encode import SMALL, Part
from dlv.pas.footer import Encoding
from dlv.pas.layouts.segments import element_bytes

SAMPLES = 6  # tensors
ELEMENTS = 1 << 19  # of each
# The gain of each further thread: they share the interpreter and the memory bus.
PER_THREAD = 0.35
FIXED_SECONDS = 0.8  # for the plan, the database, and deleting old packs


@dataclass(frozen=True)
class Rehearsed:
    """The seconds that the archive will take, and its bytes above the estimate."""

    seconds: float
    more: int


def rehearse(
    chosen: Sequence[tuple[Choice, Encoding]],
    estimates: Callable[[Choice], Tried],
    matrix: Callable[[str], Raw],
    speeds: Speeds,
    *,
    thorough: bool,
    jobs: int,
) -> Rehearsed:
    """Encode a sample of the estimated choices and extrapolate."""
    guessed = [row for row in chosen if not estimates(row[0]).exact]
    taken = 0
    spent = expected = made = 0.0
    for choice, encoding in _spread(guessed):
        target, base, shape = _block(choice, encoding, matrix)
        given = (target, base, encoding.dtype, shape, choice.matrix, choice.base or choice.matrix)
        sizes: list[int] = []
        emit = partial(_measure, sizes)
        begun = time.perf_counter()
        if choice.kind == "sub":
            small.encode_plain(*given, emit, check=False)
        else:
            small.encode_small(*given, emit, thorough=thorough, check=False)
        spent += time.perf_counter() - begun
        taken += len(target)
        raw = encoding.size or 1
        made += sum(sizes)
        expected += estimates(choice).stored * len(target) / raw
    pace = spent / max(1, taken)
    ratio = made / expected if expected else 1.0
    threads = 1 + PER_THREAD * (jobs - 1)
    seconds = FIXED_SECONDS
    for choice, encoding in chosen:
        raw = encoding.size
        tried = estimates(choice)
        reading = raw / speeds.decode["zstd"] / 1e6 * (1 if choice.base is None else 2)
        checking = reading + raw / speeds.decode[_manner(choice)] / 1e6
        encoding_it = 0.0 if tried.exact else raw * pace + reading
        seconds += (encoding_it + checking) / threads
    stored = sum(estimates(choice).stored for choice, _ in guessed)
    return Rehearsed(seconds, round(stored * (ratio - 1)))


def _measure(sizes: list[int], part: Part) -> None:
    sizes.append(len(part.encoded.data))


def _manner(choice: Choice) -> str:
    return "zstd" if choice.kind == "materialise" else choice.kind


def _spread(guessed: Sequence[tuple[Choice, Encoding]]) -> list[tuple[Choice, Encoding]]:
    """A few choices, spaced evenly by bytes."""
    rows = [row for row in guessed if row[0].base is not None and row[1].size > SMALL]
    if len(rows) <= SAMPLES:
        return rows
    ends = np.cumsum([encoding.size for _, encoding in rows])
    places = np.searchsorted(ends, (np.arange(SAMPLES) + 0.5) / SAMPLES * ends[-1])
    return [rows[place] for place in dict.fromkeys(places.tolist())]


def _block(
    choice: Choice, encoding: Encoding, matrix: Callable[[str], Raw]
) -> tuple[Raw, Raw, tuple[int, ...]]:
    """Rows from the middle of a matrix and of its base."""
    rows, columns = view(encoding.shape)
    width = element_bytes(encoding.dtype)
    some = max(1, min(rows, ELEMENTS // max(1, columns)))
    if rows == 1:
        columns = min(columns, ELEMENTS)
    first = (rows - some) // 2 * columns * width
    span = slice(first, first + some * columns * width)
    assert choice.base is not None
    target, base = (memoryview(matrix(name))[span] for name in (choice.matrix, choice.base))
    return target, base, (some, columns)
