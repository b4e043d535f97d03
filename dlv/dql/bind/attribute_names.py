"""The attributes that queries may ask of nodes, by the operations that have them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from dlv.dql.bind.things import BOOLEAN, LIST, NUMBER, TEXT
from dlv.network.fields import Kind
from dlv.network.ops.op import Attribute
from dlv.network.vocabulary import OPS

# Of every node.
GENERAL: dict[str, frozenset[str]] = {
    "name": frozenset({TEXT}),
    "alias": frozenset({TEXT}),
    "op": frozenset({TEXT}),
    "variant": frozenset({TEXT}),
    "out_shape": frozenset({LIST, NUMBER, TEXT}),
    "n_params": frozenset({NUMBER}),
}
# Kinds of values that may stand beside an attribute: one number stands for a list of them, too.
_KINDS = {
    Kind.INT: (NUMBER,),
    Kind.FLOAT: (NUMBER,),
    Kind.BOOL: (BOOLEAN,),
    Kind.TEXT: (TEXT,),
    Kind.DTYPE: (TEXT,),
    Kind.INTS: (NUMBER, LIST),
    Kind.AXES: (NUMBER, LIST),
    Kind.SHAPE: (NUMBER, TEXT, LIST),
    Kind.PER_AXIS: (NUMBER, LIST),
    Kind.PER_AXIS_OR_NULL: (NUMBER, LIST),
    Kind.PAIRS: (NUMBER, LIST),
}


@cache
def of_operation(op: str, variant: str | None = None) -> dict[str, frozenset[str]]:
    """The attributes of an operation's own, and the kinds of what they may hold."""
    attributes: list[Attribute] = [
        each
        for each in OPS[op].attributes
        if variant is None or not each.variants or variant in each.variants
    ]
    attributes += [each for kind in OPS[op].kinds.values() for each in kind]
    return _by_name(attributes)


@cache
def everywhere() -> dict[str, frozenset[str]]:
    """Those of all operations together, and what every node has."""
    found = dict(GENERAL)
    for op in OPS:
        for name, kinds in of_operation(op).items():
            found[name] = found.get(name, frozenset()) | kinds
    return found


def _by_name(attributes: Iterable[Attribute]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for each in attributes:
        found[each.name] = found.get(each.name, frozenset()) | frozenset(_KINDS[each.kind])
    return found
