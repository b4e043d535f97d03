"""Figure 6(a): what lossy schemes save, and what they cost in accuracy."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks.storage import lenet, models, ours
from benchmarks.storage.corpora import Corpus
from benchmarks.storage.models import Matrix, Model
from dlv.pas.layouts.schemes import Scheme, fit, suits

SCHEMES = {
    "float16": [Scheme("fp16")],
    "bfloat16": [Scheme("bf16")],
    "fixed point": [Scheme("fixed", bits) for bits in (12, 8, 6, 5, 4, 3, 2)],
    "uniform": [Scheme("uniform", bits) for bits in (8, 6, 5, 4, 3, 2, 1)],
    "random": [Scheme("random", bits) for bits in (8, 6, 5, 4, 3, 2, 1)],
    "Lloyd": [Scheme("lloyd", bits) for bits in (8, 6, 5, 4, 3, 2, 1)],
}
LINES = ("adam", "sgd", "retrained-adam", "retrained-sgd")


def rounded(model: Model, scheme: Scheme) -> Model:
    return {name: _rounded(held, scheme) for name, held in model.items()}


def _rounded(held: Matrix, scheme: Scheme) -> Matrix:
    if not suits(scheme, held.dtype, held.shape):
        return held
    made = fit(scheme, held.dtype, held.shape, [held.raw]).rounding
    return held if made is None else Matrix(held.dtype, held.shape, bytes(made.apply(held.raw)))


def measure(corpus: Corpus) -> dict[str, Any]:
    """Mean compression factor and mean drop of accuracy over the last checkpoints of four runs."""
    _, _, x, y = lenet.images()
    ends = [corpus.end(line) for line in LINES]
    exact = [lenet.accuracy(model, x, y) for model in ends]

    def point(label: str, made: list[Model]) -> Mapping[str, Any]:
        packs = [ours.store(model, None, "small").memory.bytes for model in made]
        drops = [
            before - lenet.accuracy(model, x, y) for before, model in zip(exact, made, strict=True)
        ]
        raw = models.size(ends[0])
        return {
            "scheme": label,
            "factor": statistics.fmean(raw / size for size in packs),
            "drop": statistics.fmean(drops),
            "drops": drops,
        }

    series = {"float32 (lossless)": [point("float32", ends)]}
    for name, schemes in SCHEMES.items():
        series[name] = [
            point(str(scheme), [rounded(model, scheme) for model in ends]) for scheme in schemes
        ]
    return {"figure": "6a", "models": list(LINES), "accuracy": exact, "series": series}
