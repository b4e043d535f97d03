"""Which predictors pay between a matrix and its base; judged by a sample of the elements."""

from __future__ import annotations

from dlv.pas.coders.codecs import choose
from dlv.pas.deltas.drift import find_drift
from dlv.pas.deltas.lowrank import Predicted, Scaled, Shrunk, find_low_rank, find_shrinks
from dlv.pas.deltas.pair import Pair
from dlv.pas.deltas.predictors import REAL, predictors_of

# A predictor costs rows in footers, and time whenever the matrix is read.
WORTH_BYTES = 256
WORTH_SHARE = 0.001
# Below this many bits per element there is nothing left to predict.
NOTHING = 0.02

NONE: Predicted = ([], b"")


def find_predictors(pair: Pair, *, thorough: bool = False) -> Predicted:
    """Configs and side data of the predictors that pay; both empty if none do.

    Candidates are drift, shrinks, low ranks alone and beside a shrink, and low ranks on top of
    drift where drift is the best so far. `thorough` always tries these, and more ranks.
    """
    if pair.dtype not in REAL:
        return NONE
    before = pair.cost()
    if before < NOTHING:
        return NONE
    count = len(pair.target)
    worth = WORTH_BYTES + WORTH_SHARE * before * count / 8

    def size(predicted: Predicted) -> float:
        cost = with_predicted(pair, predicted).cost()
        return cost * count / 8 + len(choose(predicted[1])[1]) + worth

    candidates: list[tuple[float, Predicted]] = [(before * count / 8, NONE)]
    firsts: list[tuple[float, Predicted, Shrunk | None]] = [(*candidates[0], None)]
    drift = find_drift(pair)
    if drift is not None:
        firsts.append((size(([drift[0]], drift[1])), ([drift[0]], drift[1]), None))
    scaled = Scaled.of(pair) if pair.rows > 1 < pair.columns else None
    if scaled is not None:
        for one in find_shrinks(scaled, thorough=thorough):
            firsts.append((size(one.predicted), one.predicted, one))
    candidates += [first[:2] for first in firsts[1:]]
    shrinks = [row[2] for row in firsts if row[2] is not None and len(row[2].alphas) == 1]
    if scaled is not None:
        for low in find_low_rank(scaled, next(iter(shrinks), None), thorough=thorough):
            candidates.append((size(low), low))
    # What drifts by the mantissa hardly shrinks in proportion.
    if drift is not None and (
        thorough or firsts[1][0] <= min(candidates, key=lambda row: row[0])[0]
    ):
        first = firsts[1][1]
        beside = Scaled.of(with_predicted(pair, first))
        for low in [] if beside is None else find_low_rank(beside, None, thorough=thorough):
            both: Predicted = ([*first[0], *low[0]], first[1] + low[1])
            candidates.append((size(both), both))
    return min(candidates, key=lambda row: row[0])[1]


def with_predicted(pair: Pair, predicted: Predicted) -> Pair:
    return pair.with_predictors(predictors_of(*predicted, pair.dtype, pair.shape))
