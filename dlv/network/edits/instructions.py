"""Edits as one types them: `conv1.out=64`, `conv1=RELU("relu9")`, `conv1..fc7`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dlv.dataclass import dataclass
from dlv.errors import NotFound, UsageError
from dlv.network.edits.edit import Derived, Editor, edit
from dlv.network.edits.slicing import slice as cut
from dlv.network.edits.wiring import Edit, Wiring
from dlv.network.graph import Network
from dlv.network.inference import Tensors
from dlv.network.patterns import parse

BETWEEN = ".."


@dataclass(frozen=True)
class Instructions:
    """What is to be done to a network; nodes by the name or alias that they have before.

    It is done in this order: slice, delete, replace, insert, set, rename.
    """

    slice: str | None = None
    delete: Sequence[str] = ()
    replace: Sequence[str] = ()
    insert: Sequence[str] = ()
    set: Sequence[str] = ()
    rename: Sequence[str] = ()
    seed: int = 0  # of what is initialised

    def __bool__(self) -> bool:
        return self.slice is not None or any(
            (self.delete, self.replace, self.insert, self.set, self.rename)
        )


def derived(
    source: Network, instructions: Instructions, tensors: Tensors | None = None
) -> tuple[Network, tuple[Edit, ...]]:
    """The network that the instructions make of another one, verified, and what was done."""
    names = _Names(source)
    network = source
    edits: tuple[Edit, ...] = ()
    if instructions.slice is not None:
        starts, ends = names.span(instructions.slice)
        made = cut(source, starts, ends, tensors=tensors)
        network, edits = made.network, tuple(made.edits)

    def act(editor: Editor) -> None:
        for text in instructions.delete:
            _delete(editor, names, text)
        for text in instructions.replace:
            node, template = _halves("replace", text, 'conv1=CONV("conv1", out=64, kernel=3)')
            editor.replace(names.name(node), parse(template))
        for text in instructions.insert:
            _insert(editor, names, text)
        for node, attrs in _settings(names, instructions.set).items():
            editor.set_attributes(node, **attrs)
        for text in instructions.rename:
            node, name = _halves("rename", text, "conv1=stem")
            editor.rename(names.name(node), name)

    last: Derived = edit(network, [act], tensors=tensors)
    return last.network, (*edits, *last.edits)


class _Names:
    """Names as they stand in the source: aliases shift as soon as something is edited."""

    def __init__(self, source: Network) -> None:
        self.source = source
        self._wiring = Wiring(source)

    def name(self, text: str) -> str:
        text = text.strip()
        if text in self._wiring.nodes:
            return text
        return self._wiring.aliases.get(text, text)

    def known(self, text: str) -> str:
        """The name of a node that must be there."""
        text = text.strip()
        if text in self.source.input_names:
            return text
        return self._wiring.find(text).name

    def span(self, text: str) -> tuple[list[str], list[str]]:
        """`a,b..c` as the names of starts and ends."""
        start, dots, end = text.partition(BETWEEN)
        if not dots or not start.strip() or not end.strip():
            raise UsageError(
                f"`{text}` is not a slice",
                hint="write START..END, several layers with commas: a,b..c",
            )
        starts, ends = ([self.known(each) for each in side.split(",")] for side in (start, end))
        return starts, ends


def _delete(editor: Editor, names: _Names, text: str) -> None:
    """A node, or `a..b` for the edge between two."""
    start, dots, end = text.partition(BETWEEN)
    if dots and start and end:
        editor.delete_edge(names.name(start), names.name(end))
    else:
        editor.delete(names.name(text))


def _insert(editor: Editor, names: _Names, text: str) -> None:
    """Behind `a`; on the edge `a..b`; before `..b`."""
    place, template = _halves("insert", text, 'conv1=RELU("relu9")')
    start, dots, end = place.partition(BETWEEN)
    if not dots:
        editor.insert(names.name(place), parse(template))
    elif not start.strip():
        editor.insert_before(names.name(end), parse(template))
    elif not end.strip():
        editor.insert(names.name(start), parse(template))
    else:
        editor.insert(names.name(start), parse(template), to=names.name(end))


def _halves(option: str, text: str, example: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not equals or not left.strip() or not right.strip():
        raise UsageError(f"--{option} {text!r} is empty", hint=f"write --{option} '{example}'")
    return left.strip(), right.strip()


def _settings(names: _Names, texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Node -> attributes, so that those of one node are set together."""
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        left, right = _halves("set", text, "conv1.out=64")
        node, dot, attribute = left.rpartition(".")
        if not dot or not node or not attribute:
            raise UsageError(
                f"--set {text!r} names no attribute of a layer", hint="write --set conv1.out=64"
            )
        name = names.name(node)
        if name not in names.source:
            _attribute_missing(names, left)
        found.setdefault(name, {})[attribute] = _value(right)
    return found


def _attribute_missing(names: _Names, left: str) -> None:
    """`--set features.0=64`: the node is there, its attribute was forgotten."""
    try:
        names.known(left)
    except NotFound:
        return
    raise UsageError(f"--set {left} names no attribute", hint=f"write --set {left}.out=64")


def _value(text: str) -> Any:
    """As in JSON; a text needs no quotes."""
    try:
        return json.loads(text)
    except ValueError:
        return text
    except RecursionError as error:
        raise UsageError(f"{text[:40]!r} is not a value") from error
