"""What was to be reached, and whether it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.progressive import nets


@dataclass(frozen=True)
class Part:
    """At least this part of the rows told from at most this share of the bits of the weights."""

    told: float
    share: float
    way: str  # f64, strict, or top-5 (under strict)


PARTS: Mapping[str, tuple[Part, ...]] = {
    "mlp": (Part(0.90, 0.25, "strict"), Part(0.97, 0.31, "strict"), Part(1.00, 0.50, "strict")),
    "lenet": (
        Part(0.90, 0.28, "strict"),
        Part(0.99, 0.51, "strict"),
        Part(0.65, 0.50, "top-5"),
        Part(0.85, 0.75, "top-5"),
    ),
    "alexnet": (
        Part(0.90, 0.51, "f64"),
        Part(0.98, 0.56, "f64"),
        Part(0.90, 0.47, "f64"),
        Part(0.97, 0.50, "f64"),
    ),
    "vgg": (
        Part(0.90, 0.48, "f64"),
        Part(0.98, 0.53, "f64"),
        Part(0.90, 0.47, "f64"),
        Part(0.97, 0.50, "f64"),
    ),
    "resnet": (
        Part(0.95, 0.52, "f64"),
        Part(0.98, 0.59, "f64"),
        Part(0.90, 0.47, "f64"),
        Part(0.97, 0.50, "f64"),
    ),
    "transformer": (Part(0.90, 0.50, "f64"),),
    **{name: (Part(0.90, 0.50, "f64"),) for name in nets.HELD_OUT},
}

# Rows told from one plane in calibrated mode, of convolutional networks.
CALIBRATED = dict.fromkeys(("lenet", "alexnet", "vgg", "resnet"), 0.965)
# Time of a pass with bounds, beside a plain one of the same precision: where convolutions count.
PASS = dict.fromkeys(CALIBRATED, 1.2)
# Time of a progressive evaluation beside loading everything and running it once.
FASTER = dict.fromkeys(("mlp", "lenet"), (0.9, 8))
# Bytes of the bounds record, beside those of the weights.
SIDE = 0.007
TRIALS = 100_000
# Goals are whole percents: what a tensor of a few hundred weights adds does not count.
HAIR = 1e-3


@dataclass(frozen=True)
class Verdict:
    """One goal: what was wanted, what was found."""

    net: str
    goal: str
    found: str
    met: bool

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def least(net: str, goal: str, found: float, wanted: float) -> Verdict:
    return Verdict(net, f"{goal} >= {wanted:g}", f"{found:.4g}", found >= wanted)


def most(net: str, goal: str, found: float, wanted: float) -> Verdict:
    return Verdict(net, f"{goal} <= {wanted:g}", f"{found:.4g}", found <= wanted)
