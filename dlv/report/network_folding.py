"""Repeated blocks of a network, drawn once: `layer.0 .. layer.11` becomes a block with `x12`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from dlv.dataclass import dataclass

_PART = re.compile(r"[^./]+")
FEWEST = 24  # layers from which a network is folded
SMALLEST = 6  # layers that folding must spare


@dataclass(frozen=True)
class Unit:
    """A layer as a drawing knows it: what tells it apart, and what it reads."""

    name: str
    kind: str  # two layers of one kind look alike
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Fold:
    """`count` blocks in a row that are alike: `first` is drawn for all; `title` says which."""

    title: str
    count: int
    first: tuple[str, ...]
    stands_for: Mapping[str, str]  # a layer of a later block -> the one that is drawn


def folds(units: Sequence[Unit], keep: Collection[str] = ()) -> list[Fold]:
    """Blocks to fold, outer ones first; blocks with a layer of `keep` are not folded."""
    if len(units) < FEWEST:
        return []
    by_name = {unit.name: unit for unit in units}
    groups: dict[tuple[int, str], dict[int, list[str]]] = {}
    for unit in units:
        for depth, match in enumerate(_PART.finditer(unit.name)):
            if match.group().isascii() and match.group().isdigit() and len(match.group()) < 9:
                key = (depth, unit.name[: match.start()])
                groups.setdefault(key, {}).setdefault(int(match.group()), []).append(unit.name)
    found: list[Fold] = []
    taken: set[str] = set()
    for (_, prefix), blocks in sorted(groups.items(), key=lambda item: item[0]):
        numbers = sorted(blocks)
        start = 0
        while start < len(numbers):
            end = start + 1
            first = blocks[numbers[start]]
            form = None if taken & {*first} else _form(first, by_name, prefix, numbers[start], keep)
            while (
                form is not None
                and end < len(numbers)
                and numbers[end] == numbers[end - 1] + 1
                and _form(blocks[numbers[end]], by_name, prefix, numbers[end], keep) == form
            ):
                end += 1
            count = end - start
            if count > 1 and (count - 1) * len(first) >= SMALLEST:
                stands_for = {
                    name: kept
                    for number in numbers[start + 1 : end]
                    for name, kept in zip(blocks[number], first, strict=True)
                }
                taken.update(first, stands_for)
                title = f"{prefix}{numbers[start]} .. {prefix}{numbers[end - 1]}"
                found.append(Fold(title, count, tuple(first), stands_for))
            start = end
    return found


def _form(
    block: Sequence[str], units: Mapping[str, Unit], prefix: str, number: int, keep: Collection[str]
) -> tuple[object, ...] | None:
    """What two blocks must have in common; None where one must not be folded."""
    if any(name in keep for name in block):
        return None
    places = {name: place for place, name in enumerate(block)}
    stem = len(prefix) + len(str(number))
    return tuple(
        (
            name[stem:],
            units[name].kind,
            tuple(places.get(source, -1) for source in units[name].sources),
        )
        for name in block
    )
