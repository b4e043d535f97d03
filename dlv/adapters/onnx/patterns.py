"""Layers that exporters write as several operators: found before anything is translated."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from dlv.adapters.onnx.model import Graph, Operator, bodies_in, captured, form, unknown
from dlv.adapters.onnx.tensors import Stored
from dlv.adapters.protobuf import shortest
from dlv.dataclass import dataclass


@dataclass(frozen=True)
class _Root:
    """The root of the mean of squares, along an axis, and of eps."""

    operators: tuple[Operator, Operator, Operator]
    eps: float
    axis: int


@dataclass(frozen=True)
class Pattern:
    """What several operators are together; it is emitted in the place of the last one."""

    kind: str  # FULL, GELU, TANH_GELU, SILU, LAYER or RMS
    x: str
    operators: tuple[Operator, ...]  # all, the one that gives the name first
    weight: str = ""
    bias: str = ""
    eps: float = 0.0
    axis: int = -1  # of LAYER and RMS: whoever knows the rank must see that it is the last one


class Wiring:
    """Who makes and who uses each value."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers: dict[str, Operator] = {}
        self.users: dict[str, list[Operator | None]] = {name: [None] for name in graph.outputs}
        for operator in graph.operators:
            for name in operator.outputs:
                self.makers[name] = operator
            bodies = [item for value in operator.attrs.values() for item in bodies_in(value)]
            for name in (*operator.inputs, *(captured(bodies) if bodies else ())):
                self.users.setdefault(name, []).append(operator)

    def only_user(self, value: str) -> Operator | None:
        users = self.users.get(value, ())
        return users[0] if len(users) == 1 else None

    def maker(self, value: str, kind: str) -> Operator | None:
        """The operator of this kind that makes a value nobody else uses."""
        operator = self.makers.get(value)
        plain = operator is not None and operator.kind == kind and not operator.domain
        return operator if plain and len(self.users.get(value, ())) == 1 else None

    def constant(self, value: str) -> Stored | None:
        stored = self.graph.stored.get(value)
        if stored is None:
            maker = self.makers.get(value)
            if maker is not None and maker.kind == "Constant" and not maker.domain:
                found = maker.attrs.get("value")
                stored = found if isinstance(found, Stored) else None
        return stored

    def number(self, value: str) -> float | None:
        """The only element of a constant, or of a node `value_float`."""
        stored = self.constant(value)
        if stored is not None and stored.elements == 1 and stored.dtype.startswith("float"):
            values = stored.values()
            return float(values[0]) if values else None
        maker = self.makers.get(value)
        found = maker.attrs.get("value_float") if maker is not None else None
        return found if isinstance(found, float) else None

    def weight(self, value: str, *, axes: int) -> Stored | None:
        """An initializer of so many axes."""
        stored = self.graph.stored.get(value)
        fits = stored is not None and len(stored.shape) == axes
        return stored if fits else None


# What the patterns ask of their operators; none but these has attributes that they know.
_READ = {"ReduceMean": ("axes", "keepdims", "noop_with_empty_axes"), "Transpose": ("perm",)}


def _plain(operator: Operator, version: int) -> bool:
    found = form("", operator.kind, version)
    fits = found is not None and len(operator.inputs) <= found.most
    return fits and unknown(found, operator.attrs, _READ.get(operator.kind, ())) is None


def find(graph: Graph, version: int) -> tuple[dict[int, Pattern], set[int]]:
    """Patterns by the id of their last operator, and the ids of the other operators in them.

    The graph's operators must be in order.
    """
    wiring = Wiring(graph)
    places = {id(operator): place for place, operator in enumerate(graph.operators)}
    found: dict[int, Pattern] = {}
    inside: set[int] = set()
    for operator in graph.operators:
        finder = None if operator.domain else _FINDERS.get(operator.kind)
        if finder is None:
            continue
        for pattern in finder(wiring, operator):
            ids = {id(each) for each in pattern.operators}
            if ids & inside or ids & set(found):
                continue
            if not all(_plain(each, version) for each in pattern.operators):
                continue
            last = max(ids, key=places.__getitem__)
            found[last] = pattern
            inside |= ids - {last}
            break
    return found, inside


def _other(operator: Operator, value: str) -> str | None:
    """The other input of an operator with two."""
    if len(operator.inputs) != 2 or value not in operator.inputs:
        return None
    return operator.inputs[1 - operator.inputs.index(value)]


def _near(value: float | None, wanted: float) -> bool:
    """The number, as far as 16 bits hold it; halves and whole numbers they hold exactly."""
    if value is None or float(2 * wanted).is_integer():
        return value == wanted
    return math.isclose(value, wanted, rel_tol=5e-4)


def _next(wiring: Wiring, operator: Operator, kind: str) -> Operator | None:
    """The only user of what an operator makes, if it is of this kind."""
    if len(operator.outputs) != 1:
        return None
    user = wiring.only_user(operator.outputs[0])
    return user if user is not None and user.kind == kind and not user.domain else None


def _linear(wiring: Wiring, matmul: Operator) -> Iterator[Pattern]:
    """MatMul with a stored matrix, and Add of a stored row."""
    add = _next(wiring, matmul, "Add")
    if add is None or len(matmul.inputs) != 2:
        return
    bias = _other(add, matmul.outputs[0])
    weight = wiring.weight(matmul.inputs[1], axes=2)
    flipped = wiring.makers.get(matmul.inputs[1])
    out = weight.shape[1] if weight is not None else None
    if weight is None and flipped is not None and flipped.kind == "Transpose" and flipped.inputs:
        weight = wiring.weight(flipped.inputs[0], axes=2)
        out = weight.shape[0] if weight is not None else None
    row = wiring.weight(bias, axes=1) if bias else None
    if not bias or row is None or weight is None:
        return
    if row.shape == (out,) and row.dtype == weight.dtype:
        yield Pattern("FULL", matmul.inputs[0], (matmul, add), matmul.inputs[1], bias)


def _halves(
    wiring: Wiring, x: str, inner: Operator, head: tuple[Operator, ...], kind: str
) -> Iterator[Pattern]:
    """x * 0.5 * (1 + inner), in any order."""
    add = _next(wiring, inner, "Add")
    if add is None or not _near(wiring.number(_other(add, inner.outputs[0]) or ""), 1):
        return
    first = _next(wiring, add, "Mul")
    if first is None:
        return
    side = _other(first, add.outputs[0]) or ""
    parts = (*head, inner, add, first)
    half = wiring.maker(side, "Mul")
    if half is not None and _near(wiring.number(_other(half, x) or ""), 0.5):
        yield Pattern(kind, x, (*head, inner, half, add, first))
    second = _next(wiring, first, "Mul")
    if second is not None:
        rest = _other(second, first.outputs[0]) or ""
        if side == x and _near(wiring.number(rest), 0.5):
            yield Pattern(kind, x, (*parts, second))
        if rest == x and _near(wiring.number(side), 0.5):
            yield Pattern(kind, x, (*parts, second))


def _gelu(wiring: Wiring, erf: Operator) -> Iterator[Pattern]:
    if len(erf.inputs) != 1:
        return
    scaled = wiring.maker(erf.inputs[0], "Div")
    divisor = scaled.inputs[-1] if scaled is not None and scaled.inputs else ""
    if scaled is not None and _near(wiring.number(divisor), math.sqrt(2)):
        yield from _halves(wiring, scaled.inputs[0], erf, (scaled,), "GELU")
    scaled = wiring.maker(erf.inputs[0], "Mul")
    for x in scaled.inputs if scaled is not None else ():
        if scaled is not None and _near(wiring.number(_other(scaled, x) or ""), math.sqrt(0.5)):
            yield from _halves(wiring, x, erf, (scaled,), "GELU")


def _tanh_gelu(wiring: Wiring, tanh: Operator) -> Iterator[Pattern]:
    """tanh(sqrt(2/pi) * (x + 0.044715 * x**3))"""
    scaled = wiring.maker(tanh.inputs[0], "Mul") if len(tanh.inputs) == 1 else None
    for value in scaled.inputs if scaled is not None else ():
        add = wiring.maker(value, "Add")
        if add is None or scaled is None:
            continue
        if not _near(wiring.number(_other(scaled, value) or ""), math.sqrt(2 / math.pi)):
            continue
        for x in add.inputs:
            cubed = wiring.maker(_other(add, x) or "", "Mul")
            for cube in cubed.inputs if cubed is not None else ():
                if cubed is None or not _near(wiring.number(_other(cubed, cube) or ""), 0.044715):
                    continue
                power = _cube(wiring, x, cube)
                if power is not None:
                    head = (*power, cubed, add, scaled)
                    yield from _halves(wiring, x, tanh, head, "TANH_GELU")


def _cube(wiring: Wiring, x: str, value: str) -> tuple[Operator, ...] | None:
    power = wiring.maker(value, "Pow")
    if power is not None and power.inputs[:1] == [x]:
        return (power,) if _near(wiring.number(power.inputs[-1]), 3) else None
    product = wiring.maker(value, "Mul")
    square = wiring.maker(_other(product, x) or "", "Mul") if product is not None else None
    if product is not None and square is not None and square.inputs == [x, x]:
        return square, product
    return None


def _silu(wiring: Wiring, sigmoid: Operator) -> Iterator[Pattern]:
    product = _next(wiring, sigmoid, "Mul")
    x = sigmoid.inputs[0] if sigmoid.inputs else ""
    if product is not None and _other(product, sigmoid.outputs[0]) == x:
        yield Pattern("SILU", x, (product, sigmoid))


def _mean_axis(wiring: Wiring, mean: Operator | None) -> int | None:
    """The one axis of a ReduceMean after which the rank is as before."""
    if mean is None or mean.attrs.get("keepdims", 1) != 1:
        return None
    axes = mean.attrs.get("axes")
    if axes is None and len(mean.inputs) == 2:
        stored = wiring.constant(mean.inputs[1])
        axes = list(stored.values() or ()) if stored is not None else None
    single = isinstance(axes, list) and len(axes) == 1 and type(axes[0]) is int
    return axes[0] if single and axes is not None else None


def _square(wiring: Wiring, operator: Operator | None, x: str) -> bool:
    if operator is None or operator.domain or len(operator.inputs) != 2:
        return False
    if operator.kind == "Mul":
        return operator.inputs == [x, x]
    return (
        operator.kind == "Pow"
        and operator.inputs[0] == x
        and _near(wiring.number(operator.inputs[-1]), 2)
    )


def _root(wiring: Wiring, square: Operator) -> _Root | None:
    mean = _next(wiring, square, "ReduceMean")
    axis = _mean_axis(wiring, mean)
    add = _next(wiring, mean, "Add") if mean is not None else None
    root = _next(wiring, add, "Sqrt") if add is not None else None
    if mean is None or add is None or root is None or axis is None:
        return None
    eps = wiring.number(_other(add, mean.outputs[0]) or "")
    return None if eps is None else _Root((mean, add, root), eps, axis)


def _layer_norm(wiring: Wiring, difference: Operator) -> Iterator[Pattern]:
    """x - mean, divided by the root of the mean of its squares, times weight, plus bias."""
    if len(difference.inputs) != 2:
        return
    x, mean = difference.inputs[0], wiring.maker(difference.inputs[1], "ReduceMean")
    if mean is None or mean.inputs[:1] != [x]:
        return
    centred = difference.outputs[0]
    users = wiring.users.get(centred, [])
    square = next((u for u in users if u and u.kind != "Div" and _square(wiring, u, centred)), None)
    quotient = next((user for user in users if user is not None and user.kind == "Div"), None)
    if square is None or quotient is None or {id(u) for u in users} != {id(square), id(quotient)}:
        return
    found = _root(wiring, square)
    if found is None or found.axis != _mean_axis(wiring, mean):
        return
    root = found.operators[-1].outputs[0]
    if quotient.inputs == [centred, root] and wiring.only_user(root) is quotient:
        parts = (mean, difference, square, *found.operators, quotient)
        yield _scaled(wiring, "LAYER", x, parts, found)


def _rms_norm(wiring: Wiring, square: Operator) -> Iterator[Pattern]:
    """x divided by the root of the mean of its squares, times weight."""
    x = square.inputs[0] if square.inputs else ""
    found = _root(wiring, square) if _square(wiring, square, x) else None
    if found is None:
        return
    root, parts = found.operators[-1], (square, *found.operators)
    last = _next(wiring, root, "Div")
    if last is not None and last.inputs == [x, root.outputs[0]]:
        yield _scaled(wiring, "RMS", x, (*parts, last), found)
        return
    inverse = _next(wiring, root, "Reciprocal")
    if inverse is None and last is not None and _near(wiring.number(last.inputs[0]), 1):
        inverse = last
    last = _next(wiring, inverse, "Mul") if inverse is not None else None
    if inverse is not None and last is not None and _other(last, inverse.outputs[0]) == x:
        yield _scaled(wiring, "RMS", x, (*parts, inverse, last), found)


def _scaled(wiring: Wiring, kind: str, x: str, parts: tuple[Operator, ...], root: _Root) -> Pattern:
    """With its weight, and for LAYER its bias, if they follow."""
    product = _next(wiring, parts[-1], "Mul")
    weight = _other(product, parts[-1].outputs[0]) if product is not None else None
    row = wiring.weight(weight, axes=1) if weight else None
    eps, axis = shortest(root.eps), root.axis
    if product is None or weight is None or row is None or row.elements < 2:
        return Pattern(kind, x, parts, eps=eps, axis=axis)
    parts = (*parts, product)
    total = _next(wiring, product, "Add") if kind == "LAYER" else None
    bias = _other(total, product.outputs[0]) if total is not None else None
    other = wiring.weight(bias, axes=1) if bias else None
    if total is not None and bias and other is not None and other.shape == row.shape:
        return Pattern(kind, x, (*parts, total), weight, bias, eps, axis)
    return Pattern(kind, x, parts, weight, eps=eps, axis=axis)


_FINDERS: Mapping[str, Callable[[Wiring, Operator], Iterator[Pattern]]] = {
    "MatMul": _linear,
    "Erf": _gelu,
    "Tanh": _tanh_gelu,
    "Sigmoid": _silu,
    "Sub": _layer_norm,
    "Pow": _rms_norm,
    "Mul": _rms_norm,
}
