"""The search for predictors of one matrix: which pay, by what differences to them cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlv.pas.coders.codecs import choose
from dlv.pas.deltas.drift import find_drift
from dlv.pas.deltas.lowrank import find_affine
from dlv.pas.deltas.pairs import Pair
from dlv.pas.deltas.predictors import REAL, predictors_of

Found = tuple[list[dict[str, Any]], bytes]

# A predictor costs rows in footers, and time whenever the matrix is read.
WORTH_BYTES = 256
WORTH_SHARE = 0.001
# Below this many bits per element there is nothing left to predict.
NOTHING = 0.02


def find_predictors(pair: Pair, *, slow: bool = False) -> Found:
    """Configs and side data of the predictors that pay; both empty if none do."""
    none: Found = ([], b"")
    if pair.dtype not in REAL:
        return none
    before = pair.cost()
    if before < NOTHING:
        return none
    count = len(pair.target)
    worth = WORTH_BYTES + WORTH_SHARE * before * count / 8
    best, best_bytes = none, before * count / 8

    def consider(found: Found) -> None:
        nonlocal best, best_bytes
        cost = _with(pair, found).cost() * count / 8 + len(choose(found[1])[1])
        if cost < best_bytes - (worth if best is none else 0):
            best, best_bytes = found, cost

    drift = find_drift(pair)
    if drift is not None:
        consider(([drift[0]], drift[1]))
    drifted = best is not none
    for found in find_affine(pair, slow=slow):
        consider(found)
    if drifted and drift is not None:
        first: Found = ([drift[0]], drift[1])
        for found in find_affine(_with(pair, first), slow=slow, shrink=False):
            consider(_joined(first, found))
    return best


def _with(pair: Pair, found: Found) -> Pair:
    return pair.with_predictors(predictors_of(found[0], found[1], pair.dtype, pair.shape))


def _joined(*parts: Found) -> Found:
    configs: Sequence[dict[str, Any]] = [config for part in parts for config in part[0]]
    return list(configs), b"".join(part[1] for part in parts)
