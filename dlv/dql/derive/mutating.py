"""The actions of `mutate`: where they take effect in one network, and how they are done.

All places are found in the source before anything is done to it. Then the actions are done in
order, each at all of its places, and none may touch a node that an earlier one took away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlv.dql.bind.bound import Change, Chosen, Delete, Insert, Making, Replace, Set
from dlv.dql.derive.matching import Layers, Match, caught
from dlv.errors import Conflict, UsageError
from dlv.metadata.select import wording
from dlv.metadata.select.node_sets import Named, Nodes
from dlv.network.edits.edit import Editor
from dlv.network.selector import filled
from dlv.network.templates import Template, template


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
        return text(self.change, self.value)


class NothingFits(UsageError):
    """An action has no place in a network."""

    def __init__(self, what: str, wanted: Nodes) -> None:
        super().__init__(what)
        self.wanted = wanted


def tasks(layers: Layers, changes: Sequence[Change], chosen: Sequence[Chosen]) -> list[Task]:
    """NothingFits if an action has no place."""
    return [Task(change, _places(layers, change, chosen)) for change in changes]


def done(editor: Editor, given: Iterable[Task]) -> None:
    """Do all of it."""
    gone: dict[str, str] = {}
    made: dict[str, str] = {}
    for tasks in _together(given):
        task = tasks[0]
        for place in task.places:
            for name in (place.node, place.other):
                if name in gone:
                    raise UsageError(
                        f"`{task.text}` cannot be done at `{name}`",
                        why=f"`{gone[name]}` took it away",
                        hint="name a node in one action only, or let the other one come first",
                    )
            _do(editor, tasks, place, made)
            for name in editor.wiring.gone:
                gone.setdefault(name, task.text)


def _together(given: Iterable[Task]) -> list[list[Task]]:
    """Attributes of the same nodes that are set one after the other are set at once.

    A variant may need attributes that the one before does not know.
    """
    found: list[list[Task]] = []
    for task in given:
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


# Where


def _places(layers: Layers, change: Change, chosen: Sequence[Chosen]) -> tuple[Place, ...]:
    behind = isinstance(change, (Insert, Delete)) and not getattr(change, "before", False)
    found = matches(layers, change.nodes, chosen, inputs=behind)
    other = _other(change)
    if other is None:
        if isinstance(change, Delete):
            found = [match for match in found if match.name in layers.network] or none(change.nodes)
        return tuple(Place(match.name, None, match.captures) for match in found)
    before = isinstance(change, Insert) and change.before
    ends = matches(layers, other, chosen, inputs=before)
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


def kind(change: Change) -> tuple[Nodes, Nodes | None]:
    """What actions have in common that are done at the same places."""
    return change.nodes, _other(change)


def matches(
    layers: Layers, wanted: Nodes, chosen: Sequence[Chosen], *, inputs: bool = False
) -> list[Match]:
    """The nodes that are meant, at least one; where none fits, inputs of the network may."""
    found = layers.nodes(wanted, chosen)
    start = wanted.start
    if not found and inputs and isinstance(start, Named) and not wanted.steps:
        tried = [(item.name, caught(start.pattern, item.name)) for item in layers.network.inputs]
        found = [Match(name, captures) for name, captures in tried if captures is not None]
    return found or none(wanted)


def none(wanted: Nodes) -> list[Match]:
    raise NothingFits(f"nothing fits {wording.nodes(wanted)}", wanted)


# Doing


def _do(editor: Editor, tasks: Sequence[Task], place: Place, made: dict[str, str]) -> None:
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
        given = _templates(editor, task, place, made)
        if isinstance(change, Replace):
            names = editor.replace(place.node, given)
        elif change.before:
            names = editor.insert_before(place.node, given, source=place.other)
        else:
            names = editor.insert(place.node, given, to=place.other)
        where = f"that of `{task.text}` at `{place}`"
        made.update(dict.fromkeys(names, where))


def _templates(editor: Editor, task: Task, place: Place, made: Mapping[str, str]) -> list[Template]:
    """What is to be made; Conflict names who else is called so."""
    change = task.change
    assert isinstance(change, (Insert, Replace))
    found = []
    taken = dict(made)
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
                f"two nodes would be called `{name}`",
                why=f"the new one of `{task.text}` at `{place}`, and {other}",
                hint='"relu$1" puts in the place of $1 what ($1) has captured in the selector',
            )
        taken[name] = f"another one of `{task.text}` at `{place}`"
    return found


# In words


def text(change: Change, value: Any = None) -> str:
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
