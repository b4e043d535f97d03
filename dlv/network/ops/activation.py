"""RELU, ACT, SOFTMAX and DROPOUT: one value in, one value out, along every axis but one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dlv.dataclass import dataclass
from dlv.kinds import Array, Floats
from dlv.network.fields import Kind
from dlv.network.ops.axes import Attrs, PortAxes, named_axis
from dlv.network.ops.op import Attribute, Elementwise, Node, NoRule, NotRunnable, Run, Shapes, Slot
from dlv.network.sizes import Shape, axis_of

if TYPE_CHECKING:
    from dlv.network.bounds.ball import Ball, BallRun, Form, Passed

# Chebyshev fits of degree 11 and 14, as polynomials, the highest power first.
# erf(x) / x - 1 on |x| <= 1, in 2 x^2 - 1: within 8e-18.
_NEAR = (
    *(-3.80659122412214e-13, 9.21125018742823e-12, -2.035231956483527e-10),
    *(4.115751500265885e-09, -7.51156925108609e-08, 1.2233827638093572e-06),
    *(-1.75371694412802e-05, 0.00021751715603563488, -0.0022854855611440855),
    *(0.019852496688984218, -0.1405360890227171, -0.0345312613301327),
)
# erfc(x) exp(x^2) on 1..6, in 2.4 (x - 3) / (x + 3) + 0.2: within 4e-18 once it is multiplied back.
_FAR = (
    *(6.0857915906870915e-12, 6.047405945991704e-12, -2.571511429603255e-10),
    *(-2.6381508985080735e-10, 1.1339538061744706e-08, -4.526700764248741e-09),
    *(-5.541274478467714e-07, 2.4255574719050315e-06, 1.9563583246137112e-05),
    *(-0.0003316029605764125, 0.002479314697078186, -0.012713147695692198),
    *(0.04969844540339464, -0.15436117429436919, 0.20798329133342885),
)
_BEYOND = 6.0  # erfc is below half a unit of 1 there
_BLOCK = 1 << 14  # numbers at a time: what is worked on stays in the cache


def erf(x: Array) -> Array:
    """The error function, in the dtype of `x`: within one unit of the last place in float64."""
    import numpy as np

    flat = np.asarray(x).reshape(-1)
    result = np.empty(flat.shape, flat.dtype)
    with np.errstate(under="ignore"):
        for start in range(0, flat.size, _BLOCK):
            block = flat[start : start + _BLOCK].astype(np.float64, copy=False)
            result[start : start + _BLOCK] = _block(block)
    return result.reshape(np.shape(x))


def _block(x: Floats) -> Floats:
    import numpy as np

    size = np.abs(x)
    near = size <= 1
    if near.all():
        return _near(x)
    found = np.empty_like(x)
    found[near] = _near(x[near])
    far = ~near  # NaN is far, and stays NaN
    found[far] = np.copysign(_far(np.minimum(size[far], _BEYOND)), x[far])
    return found


def _near(x: Floats) -> Floats:
    return x + x * _polynomial(_NEAR, 2 * x * x - 1)


def _far(x: Floats) -> Floats:
    import numpy as np

    complement = _polynomial(_FAR, 2.4 * (x - 3) / (x + 3) + 0.2) * np.exp(-x * x)
    return np.where(x < _BEYOND, 1 - complement, x / _BEYOND)


def _polynomial(coefficients: tuple[float, ...], x: Floats) -> Floats:
    import numpy as np

    result = np.full_like(x, coefficients[0])
    for each in coefficients[1:]:
        result *= x
        result += each
    return result


_HALF_ROOT = math.sqrt(0.5)
_ROOT_OF_2_OVER_PI = math.sqrt(2 / math.pi)


@dataclass(frozen=True)
class Curve:
    """What is known of an activation: no slope is steeper than `steepest`.

    It falls up to `turn` and rises behind it; None: it rises everywhere. Every computed value
    is within `lost` units of rounding, of x where `of_x`, else of 1.
    """

    function: Callable[[Array], Array]
    steepest: float
    lost: float = 0.0
    of_x: bool = False
    turn: float | None = None


def sigmoid(x: Array) -> Array:
    import numpy as np

    small = np.exp(-np.abs(x))
    found: Array = np.where(x >= 0, 1 / (1 + small), small / (1 + small))
    return found


def _silu(x: Array) -> Array:
    return x * sigmoid(x)


def gelu(x: Array) -> Array:

    found: Array = 0.5 * x * (1 + erf(x * _HALF_ROOT))
    return found


def gelu_by_tanh(x: Array) -> Array:
    import numpy as np

    found: Array = 0.5 * x * (1 + np.tanh(_ROOT_OF_2_OVER_PI * (x + 0.044715 * x * x * x)))
    return found


def _tanh(x: Array) -> Array:
    import numpy as np

    found: Array = np.tanh(x)
    return found


def _relu6(x: Array) -> Array:
    import numpy as np

    found: Array = np.clip(x, 0, 6)
    return found


# Slopes and turning points are rounded outwards: the steepest are 1.128904, 1.128993 and 1.099839.
# GELU multiplies x by 1 + erf, which cancels for negative x: what it loses is a share of x.
_CURVES: Mapping[str, Curve] = {
    "GELU none": Curve(gelu, 1.13, 10, of_x=True, turn=-0.751791524693564),
    "GELU tanh": Curve(gelu_by_tanh, 1.13, 10, of_x=True, turn=-0.752461422071016),
    "SILU": Curve(_silu, 1.1, 10, of_x=True, turn=-1.278464542761074),
    "SIGMOID": Curve(sigmoid, 0.25, 8),
    "TANH": Curve(_tanh, 1.0, 8),
    "RELU6": Curve(_relu6, 1.0),
}


def curve_of(node: Node) -> Curve:
    """The curve of a RELU or ACT."""
    if node.op == "RELU":
        return _relu(node.attrs["slope"])
    name = str(node.variant)
    return _CURVES[f"GELU {node.attrs['approximate']}" if name == "GELU" else name]


def _relu(slope: float) -> Curve:
    import numpy as np

    if not slope:
        return Curve(lambda x: np.maximum(x, 0), 1.0)
    turn = 0.0 if slope < 0 else None
    steepest = max(1.0, abs(slope))
    # The slope itself is rounded to the precision of the reference.
    return Curve(
        lambda x: np.where(x >= 0, x, x * slope), steepest, 3 * steepest, of_x=True, turn=turn
    )


def along(curve: Curve, ball: Ball, run: BallRun) -> Ball:
    """The ball behind an activation."""
    import numpy as np

    import dlv.network.bounds.grains as grains

    x = ball.centre
    y = np.asarray(curve.function(x), np.float64)
    plain = ball.box is None and ball.tokens is None and not ball.groups
    if plain and not curve.lost and not curve.of_x and x.ndim and len(ball.radius) == len(x):
        # Nothing is rounded, and there are only radii of rows: the same as below, sooner.
        import dlv.network.bounds.ball as balls

        lost = run.reference.tiny * math.sqrt(grains.count(x.shape, 1))
        return balls.Ball(y, (curve.steepest * ball.radius + lost) * grains.RAISED)
    found = []
    for lead, grid in grains.grains(ball):
        n = grains.count(x.shape, lead)
        size = grains.norm(x, lead) if curve.of_x else math.sqrt(n)
        extra = grid if curve.of_x else 0.0
        rounding = grains.slip(
            run.reference, max(curve.lost, 1) if curve.lost else 0, size, extra, n
        )
        # Without any rounding a tiny number may still be flushed to zero.
        rounding = rounding + run.reference.tiny * math.sqrt(n)
        reach = curve.steepest * grid
        if lead == x.ndim:
            reach = np.minimum(reach, _ends(curve, x, grid, y))
        found.append((reach + rounding) * grains.RAISED)
    return grains.settled(y, found, box=ball.box is not None)


def _ends(curve: Curve, x: Array, radius: Array, y: Array) -> Array:
    """How far the curve goes from `y` between `x - radius` and `x + radius`."""
    import numpy as np

    low, high = x - radius, x + radius
    at_low, at_high = curve.function(low), curve.function(high)
    found = np.maximum(np.abs(at_low - y), np.abs(at_high - y))
    if curve.turn is not None:
        inside = (low < curve.turn) & (high > curve.turn)
        least = curve.function(np.full_like(x, curve.turn))
        found = np.where(inside, np.maximum(found, np.abs(least - y)), found)
    # The ends are rounded, and what the curve gives there; beside its turn it is flat.
    size = np.maximum(np.abs(low), np.abs(high))
    found = found + 2.0**-52 * ((1 + curve.lost * curve.of_x) * size + curve.lost) + 1e-300
    return np.asarray(found, np.float64)


class Relu(Elementwise):
    """x where it is above zero; below, x by a slope: a number, or a stored tensor of them."""

    name = "RELU"
    attributes = (Attribute("slope", Kind.FLOAT, 0.0),)
    slots = (Slot("slope", "optional"),)  # broadcast along the last axes
    optional_tensors = True

    def faults(self, node: Node) -> list[str]:
        both = node.params and node.attrs["slope"]
        return ["slope is an attribute or a tensor, not both"] if both else []

    def parameter_shapes(self, node: Node, inputs: Shapes) -> Mapping[str, Shape | None]:
        if not node.params:
            return {}
        known = inputs[0] if inputs else None
        return {"slope": None if known is None else (None,) * (len(known) - 1)}

    def forward(self, node: Node, run: Run) -> tuple[Array, ...]:
        if node.params:
            import numpy as np

            x = run.inputs[0]
            slopes = self._slopes(node, x, run.params["slope"])
            return (np.where(x >= 0, x, x * slopes.astype(x.dtype, copy=False)),)
        return (curve_of(node).function(run.inputs[0]),)

    def bounds(self, node: Node, run: BallRun) -> tuple[Ball, ...]:
        if node.params:
            return (self._sloped(node, run),)
        return (along(curve_of(node), run.inputs[0], run),)

    @staticmethod
    def _slopes(node: Node, x: Array, slopes: Array) -> Array:
        pairs = zip(reversed(x.shape[1:]), reversed(slopes.shape), strict=False)
        if slopes.ndim >= x.ndim or any(side not in (1, length) for length, side in pairs):
            raise NotRunnable(node, f"its slopes {slopes.shape} do not fit its input {x.shape}")
        return slopes

    def _sloped(self, node: Node, run: BallRun) -> Ball:
        """No place moves further than by the steeper of its two slopes."""
        import numpy as np

        import dlv.network.bounds.grains as grains

        ball = run.inputs[0]
        x, slopes = ball.centre, self._slopes(node, ball.centre, run.params["slope"])
        steepest = np.broadcast_to(np.maximum(1.0, np.abs(slopes)), x.shape)
        found = []
        for lead, grid in grains.grains(ball):
            n = grains.count(x.shape, lead)
            reach = grains.most(steepest, lead) * grid
            lost = grains.slip(run.reference, 3, grains.norm(x * steepest, lead), reach, n)
            found.append((reach + lost + run.reference.tiny * math.sqrt(n)) * grains.RAISED)
        centre = np.asarray(np.where(x >= 0, x, x * slopes), np.float64)
        return grains.settled(centre, found, box=ball.box is not None)

    def adjoint(self, node: Node, form: Form) -> Passed | None:
        """a >= 0: a tangent below; a < 0: the chord above."""
        if node.attrs["slope"] or node.params:
            return None
        import numpy as np

        import dlv.network.bounds.ball as balls

        given, a = form.run.inputs[0], form.a
        centre, far = form.of(given.centre), form.reach(given)
        bent = np.abs(centre) < far
        chord = (centre + far) / np.where(bent, 2 * far, 1.0)
        slope = np.where(bent & (a < 0), chord, np.where(bent, centre >= 0, centre > 0))
        lost = np.where(bent & (a < 0), (far - np.abs(centre)) / 2 + balls.SLACK * far, 0.0)
        lost = lost + form.run.reference.tiny
        return [a * slope], balls.total(np.abs(a) * lost)


class Act(Elementwise):
    name = "ACT"
    variants = ("GELU", "SILU", "SIGMOID", "TANH", "RELU6")
    attributes = (
        Attribute("approximate", Kind.TEXT, "none", choices=("none", "tanh"), variants=("GELU",)),
    )

    def within_loss(self, node: Node) -> str | None:
        return "bce" if node.variant == "SIGMOID" else None

    def forward(self, node: Node, run: Run) -> tuple[Array, ...]:
        return (curve_of(node).function(run.inputs[0]),)

    def bounds(self, node: Node, run: BallRun) -> tuple[Ball, ...]:
        return (along(curve_of(node), run.inputs[0], run),)


class Dropout(Elementwise):
    name = "DROPOUT"
    attributes = (Attribute("p", Kind.FLOAT, 0.5, minimum=0, maximum=1),)
    dropout = True

    def passes(self, node: Node) -> bool:
        return True

    def forward(self, node: Node, run: Run) -> tuple[Array, ...]:
        return (run.inputs[0],)

    def bounds(self, node: Node, run: BallRun) -> tuple[Ball, ...]:
        return (run.inputs[0],)

    def adjoint(self, node: Node, form: Form) -> Passed | None:
        import numpy as np

        return [form.a], np.zeros(len(form.a))


class Softmax(Elementwise):
    name = "SOFTMAX"
    attributes = (Attribute("axis", Kind.INT, -1), Attribute("log", Kind.BOOL, False))

    gives_probabilities = True

    def keeps_order(self, node: Node) -> bool:
        return node.attrs.get("axis") in (-1, 1)

    def within_loss(self, node: Node) -> str | None:
        return "cross_entropy" if self.keeps_order(node) else None

    def shape(self, node: Node, inputs: Shapes) -> tuple[Shape | None, ...]:
        if inputs[0]:
            axis_of(node.attrs["axis"], len(inputs[0]), "axis")
        return (inputs[0],)

    def comparable(
        self, node: Node, attrs: Attrs, inputs: PortAxes, outputs: PortAxes
    ) -> tuple[str | None, Attrs]:
        if inputs and inputs[0] is not None:
            attrs["axis"] = named_axis(inputs[0], attrs["axis"], False)
        return node.variant, attrs

    def forward(self, node: Node, run: Run) -> tuple[Array, ...]:
        x, axis = run.inputs[0], node.attrs["axis"]
        return (log_softmax(x, axis) if node.attrs["log"] else softmax(x, axis),)

    def bounds(self, node: Node, run: BallRun) -> tuple[Ball, ...]:
        """Shares change by half as much as scores at most, in norm; logarithms by sqrt(n)."""
        ball = run.inputs[0]
        x, log = ball.centre, node.attrs["log"]
        axis = axis_of(node.attrs["axis"], x.ndim, "axis")
        if not axis:
            raise NoRule(node, "it uses the batch axis")
        import dlv.network.bounds.grains as grains

        n = max(x.shape[axis], 1)
        y = log_softmax(x, axis) if log else softmax(x, axis)
        steepest = math.sqrt(n) if log else 0.5
        found = []
        for lead, grid in grains.grains(ball):
            # A group that is cut by the axis says nothing about what is in the other one.
            if lead > axis or (lead == x.ndim):
                continue
            total = grains.count(x.shape, lead)
            # Of each share, the rounding of its exponent, of exp, of the sum and of the division.
            size: Array | float = math.sqrt(total / n)
            if log:
                size = math.sqrt(total) * (1 + math.log(n) + _widths(x, axis, lead))
            extra = math.sqrt(total) * 2 * grid if log else 0.0
            rounding = grains.slip(run.reference, 3 * n + 32, size, extra, total)
            found.append((steepest * grid + rounding) * grains.RAISED)
        return (grains.settled(y, found),)


def _widths(x: Array, axis: int, lead: int) -> Array:
    """How far apart the scores of one sum are at most."""
    import dlv.network.bounds.grains as grains

    wide = x.max(axis=axis, keepdims=True) - x.min(axis=axis, keepdims=True)
    return grains.most(wide, lead)


def softmax(x: Array, axis: int) -> Array:
    """Shares that sum to one along the axis."""
    import numpy as np

    found = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(found / found.sum(axis=axis, keepdims=True), found.dtype)


def log_softmax(x: Array, axis: int) -> Array:
    """Their logarithms."""
    import numpy as np

    moved = x - x.max(axis=axis, keepdims=True)
    return np.asarray(moved - np.log(np.exp(moved).sum(axis=axis, keepdims=True)), moved.dtype)
