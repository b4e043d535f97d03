"""Whether what dlv makes of a model computes what the model itself computes.

For importers: inputs drawn from shapes or like an example, how far apart two results are, the
first layer from which on they differ, and whether a comparison would take too long.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dlv.dataclass import dataclass
from dlv.dtypes import ITEM_BYTES
from dlv.errors import UsageError
from dlv.kinds import Array
from dlv.network.graph import Input, Network
from dlv.network.inference import Tensors
from dlv.network.ops.op import op_of
from dlv.network.sizes import Dim
from dlv.network.summary import summary

# A result may be off by this much of its size. Rounding stays far below in float32; what means
# something else is above: the smallest seen was 5e-4, padding before one pool of fifty layers.
TOLERANCE = 1e-4
# Of results in fewer bits, so many units of their last place.
_UNITS = 8
# What is smaller is rounding: the difference of equal numbers.
_NOTHING = 5e-7
# Numbers so much larger than a quarter of them, a mask's -1e9, say nothing of the others' size.
_OUTLYING = 1000.0
# Three pictures of ResNet50, which take all engines together five seconds of a processor.
MOST_FLOPS = 30 * 10**9
MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class Difference:
    """Where two runs part. `size` is relative to TOLERANCE's measure; infinite: another form."""

    where: str
    size: float
    why: str = ""

    def __str__(self) -> str:
        return f"{self.where!r} {self.why or f'is off by {self.size:.2g} of its size'}"


def drawn(
    inputs: Sequence[Input],
    *,
    batch: int = 2,
    other: int = 8,
    most: int = 5,
    seed: int = 0,
    limits: Mapping[str, int] | None = None,
) -> dict[str, Array]:
    """Inputs of these shapes, the same for a seed: floats normal, whole numbers below `most`.

    `batch`: the length of an open first axis; `other`: of every other open axis. `limits`: by
    name of an input, below what its numbers have to be (`rows_of`).
    """
    dice = np.random.default_rng(seed)
    sizes: dict[str, int] = {}
    found = {}
    for item in inputs:
        shape = [_length(dim, place, batch, other, sizes) for place, dim in enumerate(item.shape)]
        found[item.name] = _numbers(dice, item, shape, (limits or {}).get(item.name, most))
    return found


def _length(dim: Dim, place: int, batch: int, other: int, sizes: dict[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    length = other if place else batch
    return length if dim is None else sizes.setdefault(dim, length)


def _numbers(dice: np.random.Generator, item: Input, shape: Sequence[int], most: int) -> Array:
    if item.dtype == "bool":
        return dice.random(shape) < 0.5
    if item.dtype.startswith(("int", "uint")):
        return dice.integers(0, max(most, 1), shape).astype(item.dtype)
    if item.dtype in ("float16", "float32", "float64"):
        return dice.standard_normal(shape).astype(item.dtype)
    raise UsageError(f"no numbers are drawn for an input of {item.dtype}")


def another(example: Array, *, batch: int | None = None, seed: int = 1) -> Array:
    """Other numbers like those of an example, with another length of the first axis if given."""
    dice = np.random.default_rng(seed)
    shape = example.shape if batch is None or not example.ndim else (batch, *example.shape[1:])
    if example.dtype.kind == "b":
        return dice.random(shape) < 0.5
    if example.dtype.kind in "iu":
        least, most = (int(example.min()), int(example.max())) if example.size else (0, 0)
        return dice.integers(least, most, shape, endpoint=True).astype(example.dtype)
    spread = float(np.std(example, dtype=np.float64)) if example.size else 0.0
    centre = float(np.mean(example, dtype=np.float64)) if example.size else 0.0
    return (centre + (spread or 1.0) * dice.standard_normal(shape)).astype(example.dtype)


def rows_of(network: Network) -> dict[str, int]:
    """Of inputs that pick rows of a table: how many rows there are."""
    found: dict[str, int] = {}
    names = network.input_names
    for node in network.nodes:
        for name, _ in node.inputs if op_of(node).lookup else ():
            if name in names:
                found[name] = min(found.get(name, 1 << 62), int(node.attrs["rows"]))
    return found


def distance(got: Array, wanted: Array) -> float:
    """How far apart they are at most, by the size of what is wanted; infinite: not comparable.

    Where both are NaN, or the same infinity, they are equal. Float widths may differ.
    """
    got, wanted = _plain(got), _plain(wanted)
    if got.shape != wanted.shape or _kind(got) != _kind(wanted):
        return float("inf")
    if not wanted.size:
        return 0.0
    if _kind(wanted) != "f":
        return 0.0 if np.array_equal(got, wanted) else float("inf")
    wide = np.complex128 if "c" in got.dtype.kind + wanted.dtype.kind else np.float64
    with np.errstate(all="ignore"):
        a, b = got.astype(wide), wanted.astype(wide)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        off = np.abs(a - b)
        size = np.abs(b)
        allowed = size + _spread(size) + _NOTHING / TOLERANCE
        apart = np.where(same, 0.0, np.where(np.isfinite(off), off / allowed, np.inf))
    return float(apart.max())


def _plain(value: Array) -> Array:
    """Narrow floats, which numpy knows by other packages only, as float32."""
    value = np.asarray(value)
    return (
        value.astype(np.float32) if value.dtype.kind == "V" and value.dtype.names is None else value
    )


def _kind(value: Array) -> str:
    kind = value.dtype.kind
    return "f" if kind in "fc" else "i" if kind in "iu" else kind


def _spread(size: Array) -> float:
    """The largest of the usual numbers: rounding in sums is as large as what is added."""
    usual = size[np.isfinite(size) & (size > 0)]
    if not usual.size:
        return 0.0
    usual = usual[usual <= _OUTLYING * np.quantile(usual, 0.25, method="lower")]
    return float(usual.max()) if usual.size else 0.0


def tolerance(*dtypes: str) -> float:
    """What `distance` may be where these are the dtypes on the way."""
    eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
    narrow = [eps.get(name, 0.125 if name.startswith("float8") else 0.0) for name in dtypes]
    return max(TOLERANCE, _UNITS * max(narrow, default=0.0))


def differing(
    names: Iterable[str],
    got: Mapping[str, Array],
    wanted: Mapping[str, Array],
    most: float = TOLERANCE,
) -> Difference | None:
    """The first of `names`, in their order, that is not the same in both; others are passed over.

    For outputs, and for the values of layers where an output differs: names in the order in which
    they are computed give the layer that is to blame.
    """
    for name in names:
        if name not in got or name not in wanted:
            continue
        a, b = _plain(got[name]), _plain(wanted[name])
        size = distance(a, b)
        if size <= most:
            continue
        why = ""
        if a.shape != b.shape:
            why = f"has the shape {list(a.shape)} instead of {list(b.shape)}"
        elif _kind(a) != _kind(b):
            why = f"holds {a.dtype} instead of {b.dtype}"
        elif not np.isfinite(size):
            why = "holds other numbers" if _kind(b) != "f" else "is not finite in the same places"
        return Difference(name, size, why)
    return None


def too_long(network: Network, tensors: Tensors, batch: int = 2) -> str | None:
    """Why a comparison would take too long; None: it does not."""
    held = sum(math.prod(shape) * ITEM_BYTES.get(dtype, 8) for dtype, shape in tensors.values())
    if held > MOST_BYTES:
        return f"it has {held / 1e9:.1f} GB of weights, the limit is {MOST_BYTES / 1e9:.1f}"
    known = [row.flops for row in summary(network, tensors).rows if row.flops is not None]
    flops = batch * sum(known)
    if flops > MOST_FLOPS:
        return f"a batch takes {flops / 1e9:.0f} GFLOPs, the limit is {MOST_FLOPS / 1e9:.0f}"
    return None
