"""The calls of torch that dlv runs itself, by name."""

from __future__ import annotations

from collections.abc import Mapping

from dlv.network.aten.layers import LAYERS
from dlv.network.aten.making import MAKING
from dlv.network.aten.moving import MOVING
from dlv.network.aten.pointwise import POINTWISE
from dlv.network.aten.precision import Function
from dlv.network.aten.reducing import REDUCING

FUNCTIONS: Mapping[str, Function] = {**POINTWISE, **REDUCING, **MOVING, **MAKING, **LAYERS}


def function_of(op: str) -> Function | None:
    """The numpy form of `aten.NAME.OVERLOAD`: of that overload alone, or of all of the name."""
    name, _, overload = op.removeprefix("aten.").partition(".")
    return FUNCTIONS.get(f"{name}.{overload}") or FUNCTIONS.get(name)
