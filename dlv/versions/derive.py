"""The numbers of a derived network: carried over from the source, or made from a seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

import dlv.weights.arrays as arrays
from dlv.adapters.checkpoint import Tensor
from dlv.canonical import hash_bytes
from dlv.dtypes import ITEM_BYTES
from dlv.errors import Damaged, UsageError
from dlv.kinds import Array, Raw
from dlv.network.edits.axes import Run
from dlv.network.edits.reuse import COPY, OVERLAP, Plan, Reuse


def tensors(plan: Plan, held: Sequence[Tensor], seed: int = 0) -> list[Tensor]:
    """The tensors of a plan, each made when it is read; `held` are those of the source."""
    known = {tensor.name: tensor for tensor in held}
    found = []
    for item in plan.tensors:
        size = _item_bytes(item, known)
        shape = item.shape or ()
        source = known.get(item.name)
        role = "weight" if source is None else source.role
        read = partial(_read, item, known, seed)
        part = source.part if source is not None and item.action == COPY else None
        nbytes = math.prod(shape) * size
        found.append(Tensor(item.name, item.dtype, shape, nbytes, read, role, item.tied, part))
    return found


def _item_bytes(item: Reuse, held: Mapping[str, Tensor]) -> int:
    if item.dtype in ITEM_BYTES:
        return ITEM_BYTES[item.dtype]
    source = held.get(item.name)
    if source is not None and item.action == COPY and source.elements:
        return source.nbytes // source.elements
    raise UsageError(f"`{item.name}` is {item.dtype}, of which dlv can make no new elements")


def _read(item: Reuse, held: Mapping[str, Tensor], seed: int) -> Raw:
    if item.action == COPY:
        return held[item.name].read()
    made = initial(item, seed)
    if item.action != OVERLAP:
        return made
    old = held[item.name].read()
    return carried(item, old, made)


def carried(item: Reuse, old: Raw, made: Raw) -> bytes:
    """The new tensor's bytes with the old one's put where they belong, whatever they stand for."""
    size = ITEM_BYTES[item.dtype]
    if len(memoryview(old).cast("B")) != math.prod(item.old_shape or ()) * size:
        raise Damaged(f"the tensor {item.name} has a wrong length")
    words = np.dtype(f"V{size}")
    source = np.frombuffer(old, words).reshape(item.old_shape or ())
    target = np.frombuffer(bytearray(made), words).reshape(item.shape or ())
    for block in item.blocks:
        places = [_places(runs) for runs in block]
        target[np.ix_(*(new for new, _ in places))] = source[np.ix_(*(old for _, old in places))]
    return target.tobytes()


def _places(runs: Sequence[Run]) -> tuple[Array, Array]:
    new = [np.arange(run.new, run.new + run.size) for run in runs]
    old = [np.arange(run.old, run.old + run.size) for run in runs]
    return np.concatenate(new), np.concatenate(old)


def turned(dtype: str, raw: Raw, factors: Sequence[int], order: Sequence[int]) -> bytes:
    """The same elements in another order: cut into these factors, which then change places."""
    values = np.frombuffer(raw, np.dtype(f"V{ITEM_BYTES[dtype]}"))
    return values.reshape(tuple(factors)).transpose(tuple(order)).tobytes()


# New elements


def initial(item: Reuse, seed: int) -> bytes:
    """The tensor as it begins: the same for one seed and name on every machine."""
    count = math.prod(item.shape or ())
    if item.fill == "uniform" and item.fan_in:
        values = _uniform(count, f"{seed}:{item.tied or item.name}") / math.sqrt(item.fan_in)
    else:
        values = np.full(count, 1.0 if item.fill == "one" else 0.0)
    return narrowed(values, item.dtype)


def _uniform(count: int, key: str) -> npt.NDArray[np.float64]:
    """Numbers in -1 .. 1 from Philox, whose raw words numpy promises to keep."""
    words = np.random.Philox(key=int(hash_bytes(key.encode())[:32], 16)).random_raw(count)
    found: npt.NDArray[np.float64] = (words >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
    return found


def narrowed(values: npt.NDArray[np.float64], dtype: str) -> bytes:
    """The bytes of numbers in a dtype, each rounded to the nearest."""
    if dtype == "bfloat16":
        bits = values.astype("<f4").view("<u4")
        # Round to even: half of the last place that stays, and one more if that one is odd.
        rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        return (rounded >> np.uint32(16)).astype("<u2").tobytes()
    if dtype.startswith("float8"):
        return _nearest(values, dtype)
    try:
        kind = np.dtype(dtype)
    except TypeError as error:
        raise UsageError(f"dlv can make no new elements of {dtype}") from error
    return np.ascontiguousarray(values.astype(kind), kind.newbyteorder("<")).tobytes()


def _nearest(values: npt.NDArray[np.float64], dtype: str) -> bytes:
    """Of a dtype with 256 values: the code whose value is nearest."""
    codes = np.arange(256, dtype=np.uint8)
    known = arrays.to_array(dtype, (256,), codes.tobytes()).astype(np.float64)
    order = np.argsort(known, kind="stable")
    order = order[np.isfinite(known[order])]
    table = known[order]
    after = np.clip(np.searchsorted(table, values), 1, len(table) - 1)
    lower = values - table[after - 1] <= table[after] - values
    return codes[order[np.where(lower, after - 1, after)]].tobytes()
