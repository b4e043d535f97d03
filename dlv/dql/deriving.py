"""`slice` and `construct`: from networks to new ones, checked, alike ones put together.

All places of the actions of `mutate` are found in the source before anything is done to it. Then
the actions are done in order, each at all of its places, and none may touch a node that an earlier
one took away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, NoReturn

import dlv.network.edits.reuse as reuse
import dlv.versions.copying as copying
from dlv.dataclass import dataclass
from dlv.dql.bind.bound import Change, Chosen, Cut, Delete, Derivation, Insert, Making, Replace, Set
from dlv.dql.matching import Layers, Match, caught
from dlv.dql.outcome import Dropped, Model, Networks
from dlv.errors import Conflict, DlvError, NotFound, UsageError, nearest
from dlv.metadata.select import wording
from dlv.metadata.select.relations import Named, Nodes
from dlv.metadata.versions import Version
from dlv.network.edits.edit import Derived, Editor
from dlv.network.edits.reuse import DROPPED, Plan, Side
from dlv.network.edits.slicing import slice as cut
from dlv.network.graph import Network
from dlv.network.inference import Tensors
from dlv.network.patterns import Template, template
from dlv.network.selector import SelectorFault, filled
from dlv.network.verify import Problem, verify
from dlv.repository.handle import Repository
from dlv.weights.store import MatrixStore


@dataclass(frozen=True)
class Place:
    """A node at which an action is done, or the edge between it and another one."""

    node: str
    other: str | None = None
    captures: Mapping[int, str] | None = None

    def __str__(self) -> str:
        return self.node if self.other is None else f"{self.node} and {self.other}"


@dataclass(frozen=True)
class Task:
    """An action and all places for it. `value`: the one that is set this time."""

    change: Change
    places: tuple[Place, ...]
    value: Any = None

    @property
    def text(self) -> str:
        return change_text(self.change, self.value)


class NothingFits(UsageError):
    """An action has no place in a network."""

    def __init__(self, message: str, wanted: Nodes) -> None:
        super().__init__(message)
        self.wanted = wanted


def find_tasks(layers: Layers, changes: Sequence[Change], chosen: Sequence[Chosen]) -> list[Task]:
    """NothingFits if an action has no place."""
    return [Task(change, _find_places(layers, change, chosen)) for change in changes]


def do_tasks(editor: Editor, given: Iterable[Task]) -> None:
    """Do all of it."""
    gone: dict[str, str] = {}
    new_names: dict[str, str] = {}
    for tasks in _together(given):
        task = tasks[0]
        for place in task.places:
            for name in (place.node, place.other):
                if name in gone:
                    raise UsageError(
                        f"`{task.text}` cannot be done at `{name}`",
                        why=f"`{gone[name]}` deleted it",
                        hint="use a node in one action only, or put the other one first",
                    )
            _do(editor, tasks, place, new_names)
            for name in editor.wiring.gone:
                gone.setdefault(name, task.text)


def _together(tasks: Iterable[Task]) -> list[list[Task]]:
    """Attributes of the same nodes that are set one after the other are set at once.

    A variant may need attributes that the one before does not know.
    """
    found: list[list[Task]] = []
    for task in tasks:
        last = found[-1] if found else []
        if (
            last
            and isinstance(task.change, Set)
            and all(
                isinstance(other.change, Set)
                and other.places == task.places
                and other.change.attribute != task.change.attribute
                for other in last
            )
        ):
            last.append(task)
        else:
            found.append([task])
    return found


# Where actions take effect


def _find_places(layers: Layers, change: Change, chosen: Sequence[Chosen]) -> tuple[Place, ...]:
    behind = isinstance(change, (Insert, Delete)) and not getattr(change, "before", False)
    found = find_matches(layers, change.nodes, chosen, inputs=behind)
    other = _other(change)
    if other is None:
        if isinstance(change, Delete):
            found = [match for match in found if match.name in layers.network] or refuse_unmatched(
                change.nodes
            )
        return tuple(Place(match.name, None, match.captures) for match in found)
    before = isinstance(change, Insert) and change.before
    ends = find_matches(layers, other, chosen, inputs=before)
    pairs = [
        Place(here.name, there.name, {**there.captures, **here.captures})
        for here in found
        for there in ends
        if layers.edge(*((there.name, here.name) if before else (here.name, there.name)))
    ]
    if not pairs:
        first, last = (other, change.nodes) if before else (change.nodes, other)
        what = f"no edge leads from {wording.nodes(first)} to {wording.nodes(last)}"
        raise NothingFits(what, change.nodes)
    return tuple(pairs)


def _other(change: Change) -> Nodes | None:
    """The far end of the edges that are meant, if edges are."""
    if isinstance(change, Insert):
        return change.source if change.before else change.to
    return change.to if isinstance(change, Delete) else None


def place_key(change: Change) -> tuple[Nodes, Nodes | None]:
    """What actions have in common that are done at the same places."""
    return change.nodes, _other(change)


def find_matches(
    layers: Layers, wanted: Nodes, chosen: Sequence[Chosen], *, inputs: bool = False
) -> list[Match]:
    """The nodes that are meant, at least one; where none fits, inputs of the network may."""
    found = layers.nodes(wanted, chosen)
    start = wanted.start
    if not found and inputs and isinstance(start, Named) and not wanted.steps:
        tried = [(item.name, caught(start.pattern, item.name)) for item in layers.network.inputs]
        found = [Match(name, captures) for name, captures in tried if captures is not None]
    return found or refuse_unmatched(wanted)


def refuse_unmatched(wanted: Nodes) -> list[Match]:
    raise NothingFits(f"no match for {wording.nodes(wanted)}", wanted)


# Actions done


def _do(editor: Editor, tasks: Sequence[Task], place: Place, new_names: dict[str, str]) -> None:
    task = tasks[0]
    change = task.change
    if isinstance(change, Set):
        settings = [(each.change, each.value) for each in tasks]
        editor.set_attributes(
            place.node, **{c.attribute: value for c, value in settings if isinstance(c, Set)}
        )
    elif isinstance(change, Delete):
        if place.other is None:
            editor.delete(place.node)
        else:
            editor.delete_edge(place.node, place.other)
    else:
        given = _templates(editor, task, place, new_names)
        if isinstance(change, Replace):
            names = editor.replace(place.node, given)
        elif change.before:
            names = editor.insert_before(place.node, given, source=place.other)
        else:
            names = editor.insert(place.node, given, to=place.other)
        where = f"that of `{task.text}` at `{place}`"
        new_names.update(dict.fromkeys(names, where))


def _templates(
    editor: Editor, task: Task, place: Place, new_names: Mapping[str, str]
) -> list[Template]:
    """What is to be made; Conflict names who else is called so."""
    change = task.change
    assert isinstance(change, (Insert, Replace))
    found = []
    taken = dict(new_names)
    for making in change.makings:
        name = None if making.name is None else filled(making.name, place.captures or {})
        words = [word for word in (making.variant, name) if word is not None]
        found.append(template(making.op, *words, **dict(making.attrs)))
        replaced = isinstance(change, Replace) and name == place.node
        if name is None or (replaced and name not in taken):
            continue
        other = taken.get(name)
        if other is None and editor.wiring.taken(name):
            other = (
                f"the {editor.wiring.nodes[name].op}" if name in editor.wiring.nodes else "an input"
            )
            other += " of the network"
        if other is not None:
            raise Conflict(
                f"two nodes would be named `{name}`",
                why=f"the new one of `{task.text}` at `{place}`, and {other}",
                hint='"relu$1" puts in the place of $1 what ($1) has captured in the selector',
            )
        taken[name] = f"another change of `{task.text}` at `{place}`"
    return found


# Actions in words


def change_text(change: Change, value: Any = None) -> str:
    """The action as one would write it."""
    here, other = wording.nodes(change.nodes), _other(change)
    there = "" if other is None else wording.nodes(other)
    if isinstance(change, Delete):
        return f"{here}.delete" + (f" = {there}" if there else "")
    if isinstance(change, Set):
        values = change.values if value is None else (value,)
        return f"{here}.{change.attribute} = " + ", ".join(wording.constant(v) for v in values)
    made = ", ".join(map(_making, change.makings))
    made = made if len(change.makings) == 1 else f"[{made}]"
    if isinstance(change, Replace):
        return f"{here}.replace = {made}"
    word = "insert_before" if change.before else "insert"
    at = f"({'from' if change.before else 'to'}={there})" if there else ""
    return f"{here}.{word}{at} = {made}"


def _making(making: Making) -> str:
    words = [f'"{word}"' for word in (making.variant, making.name) if word is not None]
    words += [f"{name}={wording.constant(value)}" for name, value in making.attrs]
    return f"{making.op}({', '.join(words)})"


def task_at(task: Task, place: Place) -> Task:
    """The same action at one place only."""
    return replace(task, places=(place,))


@dataclass(frozen=True)
class Origin:
    """A network and whose it is. `tensors`: what that version holds, by name.

    Of a network that was itself derived, `base` is what the stored version has, `made_of` what
    the last step had, and `tensors` are those that it would begin with.
    """

    label: str
    version: str
    network: Network
    tensors: Tensors
    tied: Mapping[str, str] = field(default_factory=dict)
    base: Origin | None = None
    made_of: Origin | None = None

    @property
    def stored(self) -> Origin:
        return self.base or self

    def plan(self, derived: Network) -> Plan | None:
        """What a network made of this one begins with, however often it was derived."""
        held = self.stored
        if not held.tensors:
            return None
        return reuse.plan(
            *(held.network, derived, held.tensors),
            tied=held.tied,
            before=held._side,
            within=self._side,
        )

    @cached_property
    def _side(self) -> Side:
        within = None if self.made_of is None else self.made_of._side
        return Side(self.network, self.tensors, within)

    def onward(self, label: str, network: Network, plan: Plan | None) -> Origin:
        """A network derived from this one, as that from which another one is to be derived."""
        known = beginning(plan)
        return Origin(label, self.version, network, known, base=self.stored, made_of=self)


def beginning(plan: Plan | None) -> Tensors:
    """The tensors of a plan."""
    items = () if plan is None else plan.tensors
    return {
        item.name: (item.dtype, item.shape)
        for item in items
        if item.shape is not None and item.action != DROPPED
    }


def of_version(repository: Repository, store: MatrixStore, version: Version) -> Origin | None:
    """None if the version has no network."""
    manifest = repository.manifest(version.id)
    if manifest.network is None:
        return None
    held = copying.held_by(manifest, version.label, store)
    return Origin(version.label, version.id, held.network, held.shapes, held.tied)


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
        result.warnings += [f"skipped {o.label}: {error.message}" for o, error in missing]
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
                f"`{change_text(change)}` makes no node",
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
    """Actions and their places: all in one network, or one network per place.

    `one_per_match`: each network takes one place of each action. Actions at the same places go
    together.
    """

    origin: Origin
    tasks: tuple[Task, ...]
    one_per_match: bool

    @property
    def _values(self) -> list[tuple[object, ...]]:
        return [
            task.change.values if isinstance(task.change, Set) else (None,) for task in self.tasks
        ]

    @cached_property
    def _groups(self) -> list[int]:
        """For each action the first one that is done at the same places."""
        kinds = [place_key(task.change) for task in self.tasks]
        return [kinds.index(kind) for kind in kinds]

    @property
    def _places(self) -> dict[int, int]:
        """How many places there are to pick one from, for the first action of each group."""
        if not self.one_per_match:
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
                if self.one_per_match:
                    tasks = [
                        task_at(task, task.places[place[first]])
                        for task, first in zip(tasks, self._groups, strict=True)
                    ]
                yield self._words(tasks), _tried(self._made, tasks)

    def _made(self, tasks: Sequence[Task]) -> Derived:
        editor = Editor(self.origin.network, self.origin.tensors)
        do_tasks(editor, tasks)
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
                for match in find_matches(layers, wanted, work.chosen, inputs=inputs)
            )
            for side, inputs in ((work.work.inputs, True), (work.work.outputs, False))
        )
        return _Slice(origin, work.work, starts, ends)
    tasks = find_tasks(layers, work.work, work.chosen)
    return _Construct(origin, tuple(tasks), work.one_per_match)


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

    def take(self, origin: Origin, words: str, result: Derived | DlvError) -> None:
        if isinstance(result, DlvError):
            self._drop(origin, words, result)
            return
        known = self.models.get(result.network.id)
        if known is not None:
            if origin.label not in known.origins:
                origins = (*known.origins, origin.label)
                self.models[known.id] = replace(known, origins=origins)
            return
        plan = self._plan(origin, result)
        problems = verify(result.network, beginning(plan) or None)
        faults = [problem for problem in problems if problem.severity == "error"]
        if faults:
            self._drop(origin, words, _unsound(faults))
            return
        # Tensors that no node uses, such as counters, came with the source.
        told = tuple(problem for problem in problems if problem.rule != "extra")
        self.models[result.network.id] = Model(
            *(result.network, (origin.label,), origin.version, result.edits, told, plan)
        )

    def _plan(self, origin: Origin, derived: Derived) -> Plan | None:
        try:
            return origin.plan(derived.network)
        except UsageError as error:
            self.warnings.append(f"{origin.label}: the new weights are unknown: {error.message}")
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
        f"the network would not be valid: {first} (rule: {first.rule})",
        why="; ".join(map(str, more[:3])) or None,
    )
