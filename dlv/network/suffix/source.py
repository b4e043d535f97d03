"""The weights that a suffix metric is made from, and the steps that have a part in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dlv.dataclass import dataclass
from dlv.kinds import Array
from dlv.network.bounds.schedule import Weights
from dlv.network.ops.op import NoRule
from dlv.network.program import Program, Step, params_of
from dlv.network.suffix.errors import matrix_of
from dlv.network.suffix.plan import Plan, Through, Told
from dlv.network.suffix.record import MOST_CLASSES

# Numbers of one form at most: beyond, the recursion of norms has to do.
MOST = 1 << 26
LINEAR = ("CONV", "FULL")


@dataclass(frozen=True)
class Source:
    """A network with its weights, and the depths at which each of them may be read."""

    program: Program
    weights: Weights
    depths: Mapping[str, Sequence[int]]

    def tensor(self, name: str) -> Array:
        return self.weights.tensor(name, None)

    def whole(self, step: Step) -> Array:
        return matrix_of(step, params_of(step, self.tensor))

    def open_at(self, step: Step, planes: int, correction: Array | None = None) -> Array:
        """What a centre leaves open, as (out, in, *kernel), batch normalisation folded in."""
        own = step.node.params["weight"]

        def tensor(name: str) -> Array:
            if name != own:
                return self.tensor(name)
            centre = self.weights.tensor(name, planes)
            return centre if correction is None else centre + correction

        return self.whole(step) - matrix_of(step, params_of(step, tensor))

    def open_depths(self, step: Step) -> Sequence[int]:
        name = step.node.params["weight"]
        return self.depths.get(self.program.network.aliases.get(name, name), ())

    def correctable(self, step: Step) -> bool:
        """Whether its weight is its own, and what it takes in is all of one input."""
        attrs, name = step.node.attrs, step.node.params["weight"]
        aliases = self.program.network.aliases
        users = [
            one
            for one in self.program.linear
            if aliases.get(one.node.params["weight"], one.node.params["weight"])
            == aliases.get(name, name)
        ]
        return len(users) == 1 and attrs.get("groups", 1) == 1 and attrs["layout"] != "depthwise"


def steps_of(made: Plan) -> list[tuple[str, Step]]:
    """The linear steps that the form passes, by their results."""
    told = (move.step for move in made.moves if isinstance(move, Told))
    return [(step.result, step) for step in told if step.node.op in LINEAR]


def scaled_steps(made: Plan) -> list[tuple[str, Step]]:
    """All that the form passes through as matrices."""
    through = (move.step for move in made.moves if isinstance(move, Through))
    return [(step.result, step) for step in through]


def check(made: Plan, source: Source) -> None:
    """NoRule where the form would be too large, or has nothing finite to be made from."""
    for move in made.moves:
        if isinstance(move, (Through, Told)):
            width = move.width
            if made.tori[move.stage].count * width * width > MOST:
                raise NoRule(move.step.node, "its form would be too large")
    last = made.last.node
    if last.attrs["out"] > MOST_CLASSES:
        raise NoRule(last, f"it has more than {MOST_CLASSES} classes")
    for _, step in [*steps_of(made), *scaled_steps(made), (made.last.result, made.last)]:
        if not np.isfinite(source.whole(step)).all():
            raise NoRule(step.node, "its weight is not finite")
