"""What linear layers do to balls: the weight's unread bits, and the rounding of both sides.

With W the whole weight, Wc its centre, dW = W - Wc and patches P(x), what the windows hold of x:
W P(x) - Wc P(xc) = W P(x - xc) + dW P(xc), where no product of two errors is left. To this
comes the rounding of the reference, at most gamma * |W| P(|x|), and that of the centre.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING

from dlv.dataclass import dataclass
from dlv.kinds import Floats
from dlv.network.ops.op import Node, NoRule

if TYPE_CHECKING:
    from dlv.network.bounds import ball as balls
    from dlv.network.bounds.ball import Form


# A product in binary64 loses this at most where it is below all normal numbers.
_SMALLEST = 2.0**-1022
# Squares of radii below this vanish.
_VANISHING = 2.0**-500
# Products too small to be told from 0 change a form by less than this.
_TINY = 2.0**-900


@dataclass(frozen=True)
class Reach:
    """How a linear layer takes in its input.

    `terms`: products per output, at most; `places`: how often each channel's bias is added to
    one row; `outputs` per row; `overlap`: the most windows that hold one element. Per row,
    `patches` bounds the norm of all that the windows of xc hold, `plain` that of xc itself.
    """

    terms: int
    places: int
    outputs: int
    overlap: int
    patches: Floats
    plain: Floats


def norms_of(node: Node, run: balls.BallRun) -> balls.Norms:
    """The norms of the node's weight; NoRule where no record tells them."""
    if run.norms is None:
        raise NoRule(node, "no norms of its weight are stored")
    return run.norms


def batch_of(node: Node, ball: balls.Ball) -> balls.Ball:
    """An input that has a radius for each row; NoRule for a constant."""
    if len(ball.radius) != len(ball.centre):
        raise NoRule(node, "its input is not a batch")
    return ball


def radii(
    norms: balls.Norms, run: balls.BallRun, reach: Reach, radius: Floats, bias: Floats | None
) -> Floats:
    """Radius of the output, for rows whose input has the radius `radius`.

    Rows may stand along several axes.
    """
    from dlv.network.bounds import ball as balls

    added = 0.0 if bias is None else sqrt(reach.places) * float(balls.l2(bias[None])[0])
    moved = norms.opn * radius + unread(norms, reach)
    found: Floats = (moved + roundings(norms, run, reach, radius, added)) * balls.UP
    return found


def roundings(
    norms: balls.Norms, run: balls.BallRun, reach: Reach, radius: Floats, added: float
) -> Floats:
    """How far both sides together may be from exact sums; `added`: the norm of all biases."""
    import numpy as np

    from dlv.network.bounds import ball as balls

    wide = reach.patches + sqrt(reach.overlap) * radius
    sums = norms.fro * wide + added
    theirs = balls.gamma(reach.terms + 3, run.reference.unit) * sums
    whole = norms.fro + norms.dfro
    ours = balls.gamma(reach.terms + 3, balls.UNIT) * (whole * reach.patches + added)
    alone = lost(run, reach) + flushed(run, reach) * (wide + norms.fro)
    found: Floats = (theirs + ours + alone * sqrt(reach.outputs)) * balls.UP
    # A float32 evaluation may overflow inside a sum.
    return np.where(sums < limit(run), found, np.inf)


def unread(norms: balls.Norms, reach: Reach) -> Floats:
    """||dW P(xc)||: by the matrix of dW, or by dW as an operator where that is told."""
    import numpy as np

    found: Floats = norms.dn * reach.patches
    if np.isfinite(norms.dopn):
        found = np.minimum(found, norms.dopn * reach.plain)
    return found


def lost(run: balls.BallRun, reach: Reach) -> float:
    """What one output may lose on both sides where products are too small to be told from 0."""
    return (reach.terms + 3) * (run.reference.tiny + 2 * _SMALLEST)


def flushed(run: balls.BallRun, reach: Reach) -> float:
    """The same, for each unit of what it is multiplied with, where a number below all normal ones
    is taken for zero before it is multiplied."""
    return run.reference.tiny * sqrt(reach.terms)


def limit(run: balls.BallRun) -> float:
    """Sums below this do not overflow in the reference."""
    return 1 / run.reference.tiny if run.reference.tiny else 2.0**1000


def box(
    norms: balls.Norms,
    run: balls.BallRun,
    reach: Reach,
    rows: Floats,
    bias: Floats | None,
    patch: Floats,
    moved: Floats,
) -> Floats:
    """Radius of each output coordinate, channels last: (..., groups * out / groups).

    `rows`: norms of the rows of Wc, by group (groups, out / groups). `patch`, `moved`: norms of
    what each window holds of xc, and of x - xc at most, by group (..., groups).
    """
    import numpy as np

    from dlv.network.bounds import ball as balls

    open_rows = np.full(rows.shape, norms.dn)
    if norms.drows is not None:
        open_rows = norms.drows.reshape(rows.shape)
    theirs = balls.gamma(reach.terms + 3, run.reference.unit)
    ours = balls.gamma(reach.terms + 3, balls.UNIT)
    whole = rows + open_rows
    alone = np.full(rows.shape, lost(run, reach))
    if bias is not None:
        alone += (theirs + ours) * np.abs(bias).reshape(rows.shape)
    small = flushed(run, reach)
    alone += small * whole
    by_moved = whole * (1 + theirs) + small
    by_patch = open_rows + theirs * whole + ours * rows + small
    # One product of matrices, (groups, places, 3) and (groups, 3, out / groups).
    shares = np.stack([by_moved, by_patch, alone], axis=1) * balls.UP
    sizes = np.stack([moved, patch, np.ones_like(patch)], axis=-1)
    flat = np.moveaxis(sizes, -2, 0).reshape(len(rows), -1, 3)
    found: Floats = np.moveaxis(np.matmul(flat, shares), 0, 1)
    return found.reshape(*patch.shape[:-1], -1)


def root(squares: Floats, terms: int) -> Floats:
    """A norm from its sum of squares, rounded up; vanished squares counted."""
    import numpy as np

    return np.sqrt(squares) * (1 + max(1e-9, terms * 2.0**-51)) + sqrt(terms) * _VANISHING


def ball(
    centre: Floats, radius: Floats, box: Floats | None, tokens: Floats | None = None
) -> balls.Ball:
    """A ball whose radius, box and tokens bound each other.

    Where the radius is infinite a sum may overflow, of which boxes know nothing.
    """
    import numpy as np

    from dlv.network.bounds import ball as balls

    each = (-1, *(1 for _ in centre.shape[1:]))
    if box is not None:
        box = np.where(np.isfinite(radius).reshape(each), box, np.inf)
    if tokens is not None:
        radius = np.minimum(radius, balls.l2(tokens))
    if box is not None:
        radius = np.minimum(radius, balls.l2(box))
        box = np.minimum(box, radius.reshape(each))
    return balls.Ball(centre, radius, box, tokens)


def unread_form(
    node: Node, form: Form, reach: Reach, rows: Floats, patch: Floats, moved: Floats, channels: str
) -> Floats:
    """What unread bits and rounding take away: dW P(x_ref), and both sides' rounding of z.

    `rows`: norms of the rows of Wc, by group; `patch`, `moved`: norms of what each window holds
    of xc, and of x_ref - xc at most, by group.
    """
    import numpy as np

    import dlv.network.ops.windows as windows
    from dlv.network.bounds import ball as balls

    run, given = form.run, form.run.inputs[0]
    norms, bias = norms_of(node, run), run.params.get("bias")
    alone = min(norms.dn * sqrt(reach.overlap), norms.dopn)
    together = radii(replace(norms, opn=alone), run, reach, given.radius, bias)
    moved = np.minimum(moved, balls.along(given.radius, moved))
    open_rows = np.full(rows.shape, norms.dn)
    if norms.drows is not None:
        open_rows = norms.drows.reshape(rows.shape)
    theirs = balls.gamma(reach.terms + 3, run.reference.unit)
    ours = balls.gamma(reach.terms + 3, balls.UNIT)
    small = flushed(run, reach)
    by_moved = open_rows + theirs * (rows + open_rows) + small
    each = moved[..., None] * by_moved + patch[..., None] * (by_moved + ours * rows)
    single = lost(run, reach) + small * (rows + open_rows)
    if bias is not None:
        single += (theirs + ours) * np.abs(bias).reshape(rows.shape)
    each = ((each + single) * balls.UP).reshape(*each.shape[:-2], -1)
    each = windows.channels_back(each, channels)
    return balls.least_of(form.a, form.of(each), form.of(together))


def backwards(node: Node, form: Form, terms: int, held: int) -> Floats:
    """What the rounding of Wc^T a takes away."""
    from dlv.network.bounds import ball as balls

    norms = norms_of(node, form.run)
    share = balls.gamma(terms + 3, balls.UNIT) * sqrt(held) * (norms.fro + norms.dfro)
    radius = form.of(form.run.inputs[0].radius)
    found: Floats = (share * balls.l2(form.a) + _TINY) * radius * balls.UP
    return found
