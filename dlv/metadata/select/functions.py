"""Functions that SQL calls: Unicode folding, selectors, Python's %, aggregates that hold NaN."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable
from typing import Any

from dlv.errors import UsageError
from dlv.metadata.schemas import BLOB, known_number, stored_number
from dlv.network.selector import Fixed, Piece, Selector, Wildcard
from dlv.objects.manifest import TensorEntry
from dlv.objects.parameters import count_parameters

# Aggregates that SQLite lacks, or that fail where numbers grow large or are none

LARGEST = 2**63 - 1  # that SQLite has


class Numbers:
    """An aggregate over what is a number."""

    def __init__(self) -> None:
        self.values: list[int | float] = []

    def step(self, value: Any) -> None:
        value = known_number(value)
        if isinstance(value, (int, float)):
            self.values.append(value)

    def finalize(self) -> Any:
        found = self.figure()
        return stored_number(found) if isinstance(found, float) else found

    def figure(self) -> Any:
        raise NotImplementedError


class Sum(Numbers):
    """Whole numbers stay so; SQLite's own sum fails where they grow too large."""

    def figure(self) -> Any:
        if not self.values:
            return None
        if all(isinstance(value, int) for value in self.values):
            whole = sum(self.values)
            return whole if abs(whole) <= LARGEST else float(whole)
        return _sum(self.values)


class Mean(Numbers):
    def figure(self) -> Any:
        return _sum(self.values) / len(self.values) if self.values else None


class Deviation(Numbers):
    """That of a sample: with one value there is none."""

    def figure(self) -> Any:
        if len(self.values) < 2:
            return None
        if not all(map(math.isfinite, self.values)):
            return math.nan  # as of a distance from what is infinite
        import statistics

        return statistics.stdev(map(float, self.values))


class Median(Numbers):
    def figure(self) -> Any:
        if any(map(math.isnan, self.values)):  # which have no place in an order
            return math.nan
        import statistics

        return statistics.median(self.values) if self.values else None


class Least:
    """As SQLite's own, but that NaN is chosen only where there is nothing else."""

    better: Callable[[Any, Any], bool] = staticmethod(operator.lt)

    def __init__(self) -> None:
        self.found: Any = None
        self.rank: tuple[int, Any] | None = None

    def step(self, value: Any) -> None:
        if value is None:
            return
        # Truth values stand before numbers, then come texts, then lists.
        plain = {int: 0, float: 0, str: 1}.get(type(value))
        rank = (2 if len(value) > 1 else -1) if plain is None else plain, value
        first = self.rank is None or self.found == BLOB
        if first or (value != BLOB and self.better(rank, self.rank)):
            self.found, self.rank = value, rank

    def finalize(self) -> Any:
        return self.found


class Greatest(Least):
    better = staticmethod(operator.gt)


class LeastBy:
    """The value of the row in which another one is least; of rows that are equal, the least."""

    ranked: type[Least] = Least

    def __init__(self) -> None:
        self.best = self.ranked()
        self.values = Least()

    def step(self, value: Any, by: Any) -> None:
        before = self.best.found
        self.best.step(by)
        if self.best.found != before or self.best.rank is None:
            self.values = Least()
        if by is not None and by == self.best.found:
            self.values.step(value)

    def finalize(self) -> Any:
        return self.values.finalize()


class GreatestBy(LeastBy):
    ranked = Greatest


def _sum(values: list[int | float]) -> float:
    """fsum refuses infinities of both signs, and sums beyond what a float holds."""
    try:
        return math.fsum(values)
    except (ValueError, OverflowError):
        return sum(map(float, values))


class Parameters:
    """How many parameters the tensors of a list hold; null without tensors."""

    def __init__(self) -> None:
        self.tensors: list[TensorEntry] = []

    def step(self, name: str, dtype: str, shape: str, role: str, tied: str | None) -> None:
        sides = tuple(json.loads(shape))
        self.tensors.append(TensorEntry(name, dtype, sides, role, tied))

    def finalize(self) -> int | None:
        return count_parameters(self.tensors) if self.tensors else None


AGGREGATES: dict[str, Callable[[], Any]] = {
    "dql_parameters": Parameters,
    "dql_sum": Sum,
    "dql_avg": Mean,
    "dql_stddev": Deviation,
    "dql_median": Median,
    "dql_min": Least,
    "dql_max": Greatest,
    "dql_argmin": LeastBy,
    "dql_argmax": GreatestBy,
}


# Functions of one row


def pieces_of_like(pattern: str, escape: str | None) -> list[Piece]:
    """% any run, _ one character, and what stands between."""
    if escape is not None and len(escape) != 1:
        raise UsageError(f"{escape!r} cannot escape", why="`escape` requires one character")
    found: list[Piece] = []
    signs = iter(pattern)
    for sign in signs:
        if sign == escape:
            sign = next(signs, "")
        elif sign in "%_":
            # Two runs are one, and no slower to look for.
            if not (sign == "%" and found and found[-1] == Wildcard(True)):
                found.append(Wildcard(sign == "%"))
            continue
        if found and isinstance(found[-1], Fixed):
            found[-1] = Fixed(found[-1].text + sign)
        else:
            found.append(Fixed(sign))
    return found


def like_test(pattern: str, escape: str | None, folded: bool) -> Callable[[Any], int | None]:
    """A function of a value: whether it is like that; None if it is no text."""
    if folded:
        pattern = pattern.casefold()
        escape = escape.casefold() if escape is not None else None
    wanted = Selector(pattern, tuple(pieces_of_like(pattern, escape)), {})

    def test(value: Any) -> int | None:
        if not isinstance(value, str):
            return None
        return int((value.casefold() if folded else value) in wanted)

    return test


def selector_test(wanted: Selector) -> Callable[[Any], int | None]:
    return lambda value: int(value in wanted) if isinstance(value, str) else None


def like_of(value: Any, pattern: Any, escape: str | None, folded: int) -> int | None:
    """`like` with a pattern that is known only row by row."""
    if not isinstance(pattern, str):
        return None
    return like_test(pattern, escape, bool(folded))(value)


def modulo(left: Any, right: Any) -> Any:
    """Python's %; null where there is none."""
    return None if left is None or right is None or right == 0 else left % right


def _of_text(function: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: function(value) if isinstance(value, str) else None


def part_of_change(change: str, place: int) -> Any:
    """The kind of a change, its name, or one of the two values."""
    part = json.loads(change)[place]
    return bytes.fromhex(part["blob"]) if isinstance(part, dict) else part


def absolute(value: Any) -> Any:
    number = known_number(value)
    if not isinstance(number, (int, float)):
        return None
    return stored_number(abs(number)) if isinstance(number, float) else abs(number)


def rounded(value: Any, digits: int) -> Any:
    """Half to even, as Python has it; whole numbers stay whole."""
    number = known_number(value)
    if not isinstance(number, (int, float)):
        return None
    if isinstance(number, float) and not math.isfinite(number):
        return stored_number(number)
    return round(number, digits) if digits or isinstance(number, int) else float(round(number))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "dql_modulo": modulo,
    "dql_like": like_of,
    "dql_change": part_of_change,
    "dql_lower": _of_text(str.lower),
    "dql_upper": _of_text(str.upper),
    "dql_length": _of_text(len),
    "dql_abs": absolute,
    "dql_round": rounded,
}
