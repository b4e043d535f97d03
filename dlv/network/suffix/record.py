"""What a writer stores of the form M, as the key `suffix` of a bounds record, and whether tables of
bounds fit a network.

Numbers of one channel are kept as small integers, so that writer and reader have the same ones:
which ones is a matter of efficiency, the bounds are computed for these.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlv.canonical import number
from dlv.dataclass import dataclass
from dlv.errors import Damaged
from dlv.kinds import Array, Floats
from dlv.network.program import Program, Step

Small = NDArray[np.int8]

FINE = 8.0  # steps of p and of A: a factor of 2^(1/8)
THETA = 256.0
MOST_CLASSES = 128  # of a table of all pairs
_MOST_NODES = 1 << 12
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_LETTERS = np.frombuffer(_ALPHABET, np.uint8)
_NONE = 127
_NUMBERS = np.full(256, _NONE, np.int8)
_NUMBERS[_LETTERS] = np.arange(64) - 32


@dataclass(frozen=True)
class Correction:
    """What is added to the centre along usual inputs: K * 2^unit, (out * taps, rank).

    Each of `values` is between -32 and 31.
    """

    values: Small
    unit: int
    rank: int

    @property
    def floats(self) -> Floats:
        return np.ldexp(self.values.astype(np.float64), self.unit).reshape(-1, self.rank)


@dataclass(frozen=True)
class SuffixLevel:
    """After so many planes: the share is `dn` * ||A x - Q^T c|| + `rest` * ||c||, c = Q A x.

    Without a correction nothing is taken off, and there is no rest.
    """

    planes: int
    dn: float
    rest: float = 0.0
    correction: Correction | None = None
    usual: float = 0.0  # the share of usual inputs; known to the writer alone


@dataclass(frozen=True)
class SuffixNode:
    """Of a node that errs, by rounding if it has no weight; `reach` is sqrt(lambda_max(M)).

    `a`: log2 of A in steps of 1/8. `basis`: the directions Q that A x mostly has, as (rank,
    channels) of 1/128; that they are nearly orthonormal helps, and no bound relies on it.
    """

    reach: float
    a: Small | None = None
    basis: Small | None = None
    levels: tuple[SuffixLevel, ...] = ()
    # Known to the writer alone: the same levels without corrections, the size of the weight.
    plain: tuple[SuffixLevel, ...] = ()
    weights: int = 0

    @cached_property
    def scale(self) -> Floats:
        assert self.a is not None
        return np.exp2(self.a / FINE)

    @cached_property
    def usual(self) -> Floats:
        assert self.basis is not None
        return np.ldexp(self.basis.astype(np.float64), -7).reshape(-1, len(self.scale))

    def level(self, planes: int) -> SuffixLevel | None:
        return next((level for level in self.levels if level.planes == planes), None)


@dataclass(frozen=True)
class Suffix:
    """`pairs`: of classes k and j, how far their difference moves for an error of 1.

    `p` and `theta`, in small steps: from them the form can be made anew.
    """

    pairs: Floats
    nodes: Mapping[str, SuffixNode]
    p: Mapping[str, Small] = field(default_factory=dict)
    theta: Mapping[str, int] = field(default_factory=dict)

    def budget(self, scores: Array) -> Floats:
        """What R each row bears before its first class is no longer certain."""
        rows = np.arange(len(scores))
        tops = scores.argmax(axis=1)
        with np.errstate(all="ignore"):
            found = (scores[rows, tops][:, None] - scores) / self.pairs[tops]
        found[rows, tops] = np.inf
        least: Floats = np.nan_to_num(found.min(axis=1), nan=0.0, posinf=0.0)
        return least

    def to_json(self) -> dict[str, Any]:
        upper = self.pairs[np.triu_indices(len(self.pairs), 1)]
        return {
            "classes": len(self.pairs),
            "pairs": [number(float(value)) for value in upper],
            "nodes": {name: _node_json(node) for name, node in self.nodes.items()},
            "p": {key: _text(value) for key, value in self.p.items()},
            "theta": dict(self.theta),
        }


def _node_json(node: SuffixNode) -> dict[str, Any]:
    found: dict[str, Any] = {"reach": number(node.reach)}
    if node.a is not None and node.basis is not None:
        found |= {"a": _text(node.a), "basis": _text(node.basis)}
        found["levels"] = [
            {"planes": level.planes, "dn": number(level.dn)}
            | (
                {}
                if level.correction is None
                else {
                    "rest": number(level.rest),
                    "correction": _letters(level.correction.values),
                    "unit": level.correction.unit,
                    "rank": level.correction.rank,
                }
            )
            for level in node.levels
        ]
    return found


def suffix_from_json(value: Mapping[str, Any], what: str = "bounds record") -> Suffix:
    """Read it strictly; Damaged where it is not well-formed."""
    try:
        return _suffix(value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"{what}: suffix is malformed", why=str(error), hint="dlv fsck") from error


def _suffix(value: Mapping[str, Any]) -> Suffix:
    _keys(value, {"classes", "pairs", "nodes", "p", "theta"})
    count = value["classes"]
    if not _whole(count, 1, MOST_CLASSES):
        raise ValueError("an impossible number of classes")
    upper = np.array([_norm(each) for each in value["pairs"]])
    pairs = np.zeros((count, count))
    if len(upper) != count * (count - 1) // 2:
        raise ValueError("its table of pairs has another size")
    pairs[np.triu_indices(count, 1)] = upper
    if not 0 < len(value["nodes"]) <= _MOST_NODES:
        raise ValueError("an impossible number of layers")
    for theta in value["theta"].values():
        if not _whole(theta, 1, 1 << 20):
            raise ValueError("a theta that is none")
    return Suffix(
        pairs + pairs.T,
        {str(name): _node(node) for name, node in value["nodes"].items()},
        {str(key): _small(text) for key, text in value["p"].items()},
        dict(value["theta"]),
    )


def _node(value: Mapping[str, Any]) -> SuffixNode:
    if "a" not in value:
        _keys(value, {"reach"})
        return SuffixNode(_norm(value["reach"]))
    _keys(value, {"reach", "a", "basis", "levels"})
    a, basis = _small(value["a"]), _small(value["basis"])
    if not len(a) or len(basis) % len(a):
        raise ValueError("numbers of channels that do not fit each other")
    levels = tuple(map(_level, value["levels"]))
    depths = [level.planes for level in levels]
    if depths != sorted(set(depths)):
        raise ValueError("levels that are not in order")
    ranks = [level.correction.rank for level in levels if level.correction is not None]
    if max(ranks, default=0) > len(basis) // len(a):
        raise ValueError("a correction of more directions than there are")
    return SuffixNode(_norm(value["reach"]), a, basis, levels)


def _level(value: Mapping[str, Any]) -> SuffixLevel:
    if not _whole(value["planes"], 1, 255):
        raise ValueError("an impossible number of planes")
    if "correction" not in value:
        _keys(value, {"planes", "dn"})
        return SuffixLevel(value["planes"], _norm(value["dn"]))
    _keys(value, {"planes", "dn", "rest", "correction", "unit", "rank"})
    if not (_whole(value["unit"], -2000, 2000) and _whole(value["rank"], 1, 1 << 12)):
        raise ValueError("an impossible unit or rank")
    correction = Correction(_read(value["correction"]), value["unit"], value["rank"])
    if len(correction.values) % correction.rank:
        raise ValueError("a correction that does not fit its rank")
    return SuffixLevel(value["planes"], _norm(value["dn"]), _norm(value["rest"]), correction)


def _keys(value: Mapping[str, Any], wanted: set[str]) -> None:
    if set(value) != wanted:
        raise ValueError(f"its keys are not {', '.join(sorted(wanted))}")


def _whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _norm(value: Any) -> float:
    if not isinstance(value, float) or not math.isfinite(value) or value < 0:
        raise ValueError("a norm that is none")
    return value


def _text(values: Small) -> str:
    return b64encode(np.ascontiguousarray(values, np.int8).tobytes()).decode("ascii")


def _letters(values: Small) -> str:
    """Numbers of 6 bits, a letter for each: entropy coding finds them again."""
    return _LETTERS[values.astype(np.intp) + 32].tobytes().decode("ascii")


def _read(text: str) -> Small:
    found = _NUMBERS[np.frombuffer(text.encode("ascii"), np.uint8)]
    if (found == _NONE).any():
        raise ValueError("letters that are none")
    return found


def _small(text: str) -> Small:
    return np.frombuffer(b64decode(text, validate=True), np.int8)


Shapes = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Sizes:
    """Of the weight of a linear step: its rows, what it takes in, and places of its kernel."""

    rows: int
    channels: int
    taps: int


def sizes_of(step: Step, shape: Sequence[int]) -> Sizes:
    """As told by the shape in which the weight is stored."""
    attrs, op = step.node.attrs, step.node.op
    if op == "EMBED":
        return Sizes(shape[0], shape[1], 1)
    layout = attrs["layout"]
    if op == "FULL":
        return Sizes(attrs["out"], prod(shape) // attrs["out"], 1)
    taps = prod(attrs["kernel"])
    if layout == "depthwise":
        return Sizes(attrs["out"], attrs["groups"], taps)
    depth = shape[1] if layout == "kernel_last" else shape[-2]
    return Sizes(attrs["out"], depth * attrs["groups"], taps)


def misfits(
    program: Program, shapes: Shapes, rows: Mapping[str, int], suffix: Suffix | None
) -> Iterator[str]:
    """What is of another size than the network's weights, which have these shapes.

    `rows`: how many norms of rows are told of linear nodes.
    """
    aliases = program.network.aliases
    known: dict[str, Sizes] = {}
    for step in program.linear:
        name = step.node.params["weight"]
        sizes = sizes_of(step, shapes[aliases.get(name, name)])
        known[step.result] = sizes
        told = rows.get(step.node.name, sizes.rows)
        if told != sizes.rows:
            yield f"`{step.node.name}` has {sizes.rows} rows, but norms for {told}"
    if suffix is None:
        return
    results = {step.result for step in program.steps}
    last = known.get(program.scores[0])
    if last is not None and len(suffix.pairs) != last.rows:
        yield f"its table of pairs is of {len(suffix.pairs)} classes, there are {last.rows}"
    for result, node in suffix.nodes.items():
        if result not in results:
            yield f"the network has no layer `{result}`"
        elif node.a is not None:
            yield from _misfits_of(result, node, known.get(result))


def _misfits_of(result: str, node: SuffixNode, sizes: Sizes | None) -> Iterator[str]:
    if sizes is None:
        yield f"`{result}` has no weight, but numbers of its channels"
        return
    channels = len(node.scale)
    if channels != sizes.channels:
        yield f"`{result}` takes in {sizes.channels} channels, but numbers for {channels}"
        return
    for level in node.levels:
        if level.correction is None:
            continue
        wanted, told = sizes.rows * sizes.taps, len(level.correction.floats)
        if told != wanted:
            yield f"`{result}` has {wanted} rows and places, a correction is of {told}"
