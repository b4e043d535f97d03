"""The operators of networks by their names; attributes of nodes checked and completed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from dlv.errors import nearest
from dlv.network.fields import FieldError, normal
from dlv.network.ops.activation import Act, Dropout, Relu, Softmax
from dlv.network.ops.attention import Attention
from dlv.network.ops.combine import Add, Concat, Mul
from dlv.network.ops.conv import Conv, Deconv
from dlv.network.ops.dense import Embed, Full
from dlv.network.ops.norm import Norm
from dlv.network.ops.op import OPERATORS, Attribute, Default, Op, Slot
from dlv.network.ops.outside import Loss, Placeholder, Raw
from dlv.network.ops.pool import Pool
from dlv.network.ops.recurrent import Recurrent
from dlv.network.ops.shape import Reshape

_CLASSES: tuple[type[Op], ...] = (
    Placeholder, Loss, Conv, Deconv, Full, Embed, Pool, Norm, Relu, Act, Softmax, Concat,
    Dropout, Add, Mul, Attention, Recurrent, Reshape, Raw,
)  # fmt: skip
OPERATORS.update({each.name: each() for each in _CLASSES})
OPS: Mapping[str, Op] = OPERATORS
RAW = Raw.name


@cache
def _attributes(op: str, variant: str | None, kind: str | None) -> Mapping[str, Attribute]:
    return OPS[op].attributes_of(variant, kind)


def attributes(
    op: str, variant: str | None, attrs: Mapping[str, Any] | None = None
) -> Mapping[str, Attribute]:
    """The attributes of an operator; of one that has kinds they depend on `kind` in `attrs`."""
    kinds = OPS[op].kinds
    kind = (attrs or {}).get("kind") if kinds else None
    if kind is not None and (not isinstance(kind, str) or kind not in kinds):
        raise FieldError(f"unknown kind {kind!r} of {op}", did_you_mean=nearest(str(kind), kinds))
    return _attributes(op, variant, kind)


def slots(op: str, variant: str | None, attrs: Mapping[str, Any]) -> tuple[Slot, ...]:
    """The parameter slots that such a node may have, in the order of its definition."""
    return OPS[op].slots_of(variant, attrs)


def axes_of(
    op: str, variant: str | None, attrs: Mapping[str, Any]
) -> tuple[int | None, tuple[str, ...]]:
    """How many spatial axes the given lists speak of, and which attributes still need it."""
    count: int | None = None
    open_names = []
    for name, attribute in attributes(op, variant, attrs).items():
        if not attribute.kind.spatial:
            continue
        value = attrs.get(name)
        if isinstance(value, (list, tuple)):
            count = len(value) if count is None else count
        elif attribute.default is not None or value is not None:
            open_names.append(name)
    return count, tuple(open_names)


def complete(
    op: str,
    variant: str | None,
    attrs: Mapping[str, Any],
    *,
    axes: int | None = None,
    params: Iterable[str] = (),
) -> dict[str, Any]:
    """All attributes of a node: those given in their normal form, defaults for the rest.

    `axes` is the number of spatial axes, for scalars that stand for all of them; a list
    among the given ones says it too. FieldError names what is wrong.
    """
    known, kinds = attributes(op, variant, attrs), OPS[op].kinds
    if kinds and attrs.get("kind") is None:
        raise FieldError(f"{op} needs the attribute 'kind'", why="one of " + ", ".join(kinds))
    for name in attrs:
        if name not in known:
            raise FieldError(
                f"unknown attribute {name!r} of {op}", did_you_mean=nearest(name, known)
            )
    listed, _ = axes_of(op, variant, attrs)
    axes = axes if listed is None else listed
    result: dict[str, Any] = {}
    for name, attribute in known.items():
        value = attrs.get(name, attribute.default)
        # `size` of an adaptive pool takes the place of the window.
        if attribute.unless and attrs.get(attribute.unless) is not None:
            if attrs.get(name) is not None:
                raise FieldError(f"{name!r} and {attribute.unless!r} cannot be combined")
            value = None
        elif value is Default.REQUIRED:
            raise FieldError(f"{op} needs the attribute {name!r}")
        elif value is Default.FROM_SLOTS:
            value = any(slot.startswith("bias") for slot in params)
        elif value is None and not attribute.nullable:
            raise FieldError(f"{name!r} may not be null")
        result[name] = None if value is None else normal(attribute.kind, name, value, axes)
        if attribute.choices and value is not None and value not in attribute.choices:
            raise FieldError(
                f"{name!r} is {value!r}",
                why="it is one of " + ", ".join(attribute.choices),
                did_you_mean=nearest(str(value), attribute.choices),
            )
    return result
