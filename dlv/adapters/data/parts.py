"""Data for training: rows to train on, rows to validate on, from one file, folder or function.

Arrays are told apart by their names: x and y, or x_train and y_train; x_val and y_val. Folders of
images may have `train` and `val` in them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dlv.adapters.data import code as data_code
from dlv.adapters.data.columns import Column
from dlv.adapters.data.sets import Data, Named, Wanted, arrays_of, chosen, fingerprint, of_table
from dlv.adapters.data.settings import Settings
from dlv.errors import UsageError

Digest = Callable[[Path], str]
UNVERIFIED = "unverified:"

_SUFFIXED = re.compile(r"(.+)_(train|val|valid|validation|test)\Z", re.IGNORECASE)
_PREFIXED = re.compile(r"(train|val|valid|validation|test)_(.+)\Z", re.IGNORECASE)
_VALIDATION = ("val", "valid", "validation")


@dataclass(frozen=True)
class Parts:
    """`batches(seed, step)` instead of `train` where a function makes every batch anew."""

    name: str
    train: Data | None
    validation: Data | None = None
    batches: Callable[[int, int], Any] | None = None
    fingerprint: str | None = None


def open_parts(
    where: str,
    config: Mapping[str, Any],
    wanted: Sequence[tuple[str, tuple[int | None, ...] | None]],
    directory: Path = Path(),
    *,
    digest: Digest = fingerprint,
) -> Parts:
    """The data that `config.input_data` names, read as `config.data` says when it is used."""
    settings = Settings.from_table(config)
    inputs = [Wanted(name, shape) for name, shape in wanted]
    if where.startswith(data_code.PREFIX):
        return _of_code(where, settings, inputs, directory)
    path = directory / where
    print_ = digest(path)
    named = arrays_of(path, settings, directory)
    if named is not None:
        return _of_arrays(named, print_, settings, inputs)
    first, second = (
        path / "train",
        next((path / w for w in _VALIDATION if (path / w).is_dir()), None),
    )
    if not first.is_dir():
        return Parts(path.name, of_table(where, path, print_, settings, inputs), fingerprint=print_)
    train = of_table(where, first, print_, settings, inputs)
    found = Parts(path.name, train, fingerprint=print_)
    if second is None:
        return found
    same = replace(settings, classes=settings.classes or train.classes)
    return replace(found, validation=of_table(where, second, print_, same, inputs))


def fingerprint_of(where: str, directory: Path = Path(), *, digest: Digest = fingerprint) -> str:
    """A hash of the data, or what its code states; else `unverified:` and the code's name."""
    if not where.startswith(data_code.PREFIX):
        return digest(directory / where)
    return data_code.stated_fingerprint(data_code.load(where, directory)) or f"{UNVERIFIED}{where}"


def _of_arrays(
    named: Named, print_: str | None, settings: Settings, wanted: Sequence[Wanted]
) -> Parts:
    train, validation = _parted(named.members)
    found = chosen(replace(named, members=train), print_, settings, wanted)
    parts = Parts(named.name, found, fingerprint=print_)
    if not validation:
        return parts
    same = replace(settings, classes=settings.classes or found.classes)
    return replace(parts, validation=chosen(Named(named.name, validation), print_, same, wanted))


def _parted(members: Mapping[str, Column]) -> tuple[Mapping[str, Column], Mapping[str, Column]]:
    """Both parts under names that say nothing of the part; what is for tests is in neither."""
    plain: dict[str, Column] = {}
    parts: dict[str, dict[str, Column]] = {"train": {}, "val": {}, "test": {}}
    for name, column in members.items():
        found, turned = _SUFFIXED.match(name), _PREFIXED.match(name)
        if found:
            base, part = found[1], found[2].lower()
        elif turned:
            part, base = turned[1].lower(), turned[2]
        else:
            plain[name] = column
            continue
        parts["val" if part in _VALIDATION else part][base] = column
    train = {**plain, **parts["train"]}
    # With nothing else than arrays called so, these are all there is.
    return (train, parts["val"]) if train else (members, {})


def _of_code(where: str, settings: Settings, wanted: Sequence[Wanted], directory: Path) -> Parts:
    function = data_code.load(where, directory)
    print_ = data_code.stated_fingerprint(function)
    if not _takes_step(function):
        named = Named(where, data_code.called(function, where))
        return _of_arrays(named, print_, settings, wanted)
    if settings != Settings():
        raise UsageError(
            f"config.data says how rows are read, and {where} makes batches",
            why="what it makes is taken as it is",
        )
    other = getattr(function, "validation", None)
    validation = None
    if other is not None:
        named = Named(where, data_code.called(other, f"{where}.validation"))
        validation = chosen(named, print_, settings, wanted)
    return Parts(where, None, validation, function, print_)


def _takes_step(function: Any) -> bool:
    """Whether it must be given a seed and a step, and makes a batch, not all rows at once."""
    try:
        given = inspect.signature(function)
        needed = [each for each in given.parameters.values() if each.default is each.empty]
        given.bind(0, 1)
    except (TypeError, ValueError):
        return False
    return any(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in needed)
