"""`slice` and `construct`: from networks to new ones, checked, alike ones put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, NoReturn

import dlv.dql.derive.mutating as mutating
from dlv.dql.bind.bound import Cut, Derivation, Insert, Replace, Set
from dlv.dql.derive.matching import Layers
from dlv.dql.derive.mutating import NothingFits, Task
from dlv.dql.derive.origins import Origin, beginning
from dlv.dql.outcome import Dropped, Model, Networks
from dlv.errors import DlvError, NotFound, UsageError, nearest
from dlv.metadata.select import wording
from dlv.metadata.select.node_sets import Named, Nodes
from dlv.network.edits.edit import Derived, Editor
from dlv.network.edits.reuse import Plan
from dlv.network.edits.slicing import slice as cut
from dlv.network.selector import SelectorFault
from dlv.network.verify import Problem, verify

MOST = 10_000  # networks of one statement
_NAMES = 5_000  # among which the nearest are looked for


def derive(work: Derivation, origins: Sequence[Origin], *, strict: bool) -> Networks:
    """All networks, in the order of their sources; equal ones once.

    A source in which something fits nowhere is left out, NotFound if that is all of them. What
    cannot be done, or is not sound, is told of and left out too; it is raised if `strict`, or if
    nothing is left.
    """
    _check(work)
    found, missing = _looked(work, origins)
    if missing and not found:
        raise _nothing(missing)
    count = sum(each.count for each in found)
    if count > MOST:
        raise UsageError(
            f"this would make {count:,} networks of {len(found):,} versions",
            why=f"at most {MOST:,} are made at once",
            hint="set fewer values in one statement, or narrow down the versions with `where`",
        )
    result = _Result(strict)
    if not isinstance(work.work, Cut) and len(work.work) > 1:
        result.warnings += [f"{o.label} is left out: {error.message}" for o, error in missing]
    for each in found:
        for words, made in each.variants():
            result.take(each.origin, words, made)
    result.check()
    return Networks(
        verb=work.verb,
        name=work.name,
        models=tuple(result.models.values()),
        dropped=tuple(result.dropped),
        skipped=tuple(origin.label for origin, _ in missing),
        warnings=tuple(result.warnings),
        into=work.into,
    )


def onward(networks: Networks, model: Model, origin: Origin) -> Origin:
    """A model as what another one is derived from. `origin`: any of the version it comes from."""
    label = f"{networks.name} of {' and '.join(model.origins)}"
    return origin.onward(label, model.network, model.reuse)


def _check(work: Derivation) -> None:
    changes = () if isinstance(work.work, Cut) else work.work
    for change in changes:
        if isinstance(change, (Insert, Replace)) and not change.makings:
            raise UsageError(
                f"`{mutating.text(change)}` makes no node",
                why="the list is empty",
                hint="`.delete` takes a node out",
            )


# Looking: what is to be done with each source


@dataclass(frozen=True)
class _Slice:
    origin: Origin
    cut: Cut
    starts: tuple[str, ...]
    ends: tuple[str, ...]

    count = 1

    def variants(self) -> Iterator[tuple[str, Derived | DlvError]]:
        network, tensors = self.origin.network, self.origin.tensors
        support = self.cut.support
        yield "", _tried(cut, network, self.starts, self.ends, support=support, tensors=tensors)


@dataclass(frozen=True)
class _Construct:
    """Actions and their places: all in one network or, if `each`, one place of each in each.

    Actions that are done at the same places go together.
    """

    origin: Origin
    tasks: tuple[Task, ...]
    each: bool

    @property
    def _values(self) -> list[tuple[object, ...]]:
        return [
            task.change.values if isinstance(task.change, Set) else (None,) for task in self.tasks
        ]

    @cached_property
    def _groups(self) -> list[int]:
        """For each action the first one that is done at the same places."""
        kinds = [mutating.kind(task.change) for task in self.tasks]
        return [kinds.index(kind) for kind in kinds]

    @property
    def _places(self) -> dict[int, int]:
        """How many places there are to pick one from, for the first action of each group."""
        if not self.each:
            return {}
        return {first: len(self.tasks[first].places) for first in self._groups}

    @property
    def count(self) -> int:
        return prod(map(len, self._values)) * prod(self._places.values())

    def variants(self) -> Iterator[tuple[str, Derived | DlvError]]:
        """What each one is, in words where there are several, and what became of it."""
        places = self._places
        for picked in product(*map(range, places.values())):
            place = dict(zip(places, picked, strict=True))
            for values in product(*self._values):
                tasks = [
                    replace(task, value=value)
                    for task, value in zip(self.tasks, values, strict=True)
                ]
                if self.each:
                    tasks = [
                        mutating.task_at(task, task.places[place[first]])
                        for task, first in zip(tasks, self._groups, strict=True)
                    ]
                yield self._words(tasks), _tried(self._made, tasks)

    def _made(self, tasks: Sequence[Task]) -> Derived:
        editor = Editor(self.origin.network, self.origin.tensors)
        mutating.done(editor, tasks)
        return editor.finish()

    def _words(self, tasks: Sequence[Task]) -> str:
        """What tells it from the others of its source."""
        told = []
        for task, values, first in zip(tasks, self._values, self._groups, strict=True):
            if self._places.get(first, 1) > 1:
                told.append(f"{task.text} at {task.places[0]}")
            elif len(values) > 1:
                told.append(task.text)
        return "; ".join(told)


def _tried(make: Callable[..., Derived], *args: Any, **more: Any) -> Derived | DlvError:
    try:
        return make(*args, **more)
    except SelectorFault:  # the statement's, whatever the network
        raise
    except DlvError as error:
        return error


_Looked = _Slice | _Construct
_Missing = tuple[Origin, NothingFits]


def _looked(work: Derivation, origins: Sequence[Origin]) -> tuple[list[_Looked], list[_Missing]]:
    found: list[_Looked] = []
    missing: list[_Missing] = []
    for origin in origins:
        layers = Layers(origin.network)
        try:
            found.append(_places(work, origin, layers))
        except NothingFits as error:
            missing.append((origin, error))
    return found, missing


def _places(work: Derivation, origin: Origin, layers: Layers) -> _Looked:
    if isinstance(work.work, Cut):
        starts, ends = (
            tuple(
                match.name
                for wanted in side
                for match in mutating.matches(layers, wanted, work.chosen, inputs=inputs)
            )
            for side, inputs in ((work.work.inputs, True), (work.work.outputs, False))
        )
        return _Slice(origin, work.work, starts, ends)
    tasks = mutating.tasks(layers, work.work, work.chosen)
    return _Construct(origin, tuple(tasks), work.each)


def _nothing(missing: Sequence[_Missing]) -> NotFound:
    """No source has what is asked for: with the names that come nearest."""
    first = missing[0][1]
    wanted: Nodes = first.wanted
    names: dict[str, None] = {}
    for origin, _ in missing:
        names.update(dict.fromkeys(node.name for node in origin.network.nodes))
        names.update(dict.fromkeys(origin.network.node_aliases().values()))
        if len(names) > _NAMES:
            break
    close: list[str] = []
    if isinstance(wanted.start, Named):
        close = nearest(_plain(wanted.start), names)
    labels = ", ".join(origin.label for origin, _ in missing[:3])
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    return NotFound(
        first.message,
        why=f"looked at {labels}{more}",
        did_you_mean=close,
        hint=f"dlv desc {missing[0][0].label} shows the layers" if not close else None,
    )


def _plain(named: Named) -> str:
    """What is left of a selector without its signs."""
    word = wording.nodal(named)
    return "".join(sign for sign in word if sign not in '*?"[]()$^\\')


# Taking: what is sound is kept


class _Result:
    def __init__(self, strict: bool) -> None:
        self._strict = strict
        self.models: dict[str, Model] = {}
        self.dropped: list[Dropped] = []
        self.warnings: list[str] = []
        self._first: DlvError | None = None

    def check(self) -> None:
        """Something was made, or nothing was asked for."""
        if self._first is None or self.models:
            return
        error, (first, *others) = self._first, self.dropped
        more = f" (and {len(others)} more could not be made)" if others else ""
        _raise(error, first.origin, more)

    def take(self, origin: Origin, words: str, made: Derived | DlvError) -> None:
        if isinstance(made, DlvError):
            self._drop(origin, words, made)
            return
        known = self.models.get(made.network.id)
        if known is not None:
            if origin.label not in known.origins:
                origins = (*known.origins, origin.label)
                self.models[known.id] = replace(known, origins=origins)
            return
        plan = self._plan(origin, made)
        problems = verify(made.network, beginning(plan) or None)
        faults = [problem for problem in problems if problem.severity == "error"]
        if faults:
            self._drop(origin, words, _unsound(faults))
            return
        # Tensors that no node uses, such as counters, came with the source.
        told = tuple(problem for problem in problems if problem.rule != "extra")
        self.models[made.network.id] = Model(
            *(made.network, (origin.label,), origin.version, made.edits, told, plan)
        )

    def _plan(self, origin: Origin, made: Derived) -> Plan | None:
        try:
            return origin.plan(made.network)
        except UsageError as error:
            self.warnings.append(f"{origin.label}: the new weights are not known: {error.message}")
            return None

    def _drop(self, origin: Origin, words: str, error: DlvError) -> None:
        where = f"{origin.label} ({words})" if words else origin.label
        if self._strict:
            _raise(error, where)
        self._first = self._first or error
        why = f" ({error.why})" if error.why else ""
        self.dropped.append(Dropped(where, error.message + why))


def _raise(error: DlvError, where: str, more: str = "") -> NoReturn:
    error.message = f"{where}: {error.message}{more}"
    error.args = (error.message,)
    raise error


def _unsound(faults: Sequence[Problem]) -> UsageError:
    first, *more = faults
    return UsageError(
        f"the network would not be sound: {first} (rule: {first.rule})",
        why="; ".join(map(str, more[:3])) or None,
    )
