"""The rows of the table of ratios: which pairs of checkpoints, what is aimed at, what came out."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.storage import models, ours
from benchmarks.storage.corpora import Corpus
from benchmarks.storage.models import Model
from benchmarks.storage.peers import AGAINST, ALONE, Peer
from dlv.pas.coders import compiled
from dlv.pas.coders.context import ContextPacked
from dlv.pas.deltas.predictors import DRIFT_BINS, Drift

# Checkpoints by number, as `line[number]`; None: no base.
Pair = tuple[Callable[[], Model], Callable[[], Model] | None]


@dataclass(frozen=True)
class Row:
    name: str
    pairs: Sequence[Pair]
    goal: float | None = None
    high_goal: float | None = None  # with `--effort high`


@dataclass
class Figure:
    """One way to store a row's pairs: mean ratio, seconds of processor time, bytes done."""

    ratios: list[float] = field(default_factory=list)
    encode: float = 0.0
    search: float = 0.0  # dlv: for predictors, out of `encode`
    check: float = 0.0  # dlv fast: reading back what was written, out of `encode`
    decode: float = 0.0
    raw: int = 0
    footers: list[float] = field(default_factory=list)  # dlv: with the footers of its packs
    above: int = 0

    @property
    def ratio(self) -> float:
        return statistics.fmean(self.ratios)

    @property
    def with_footers(self) -> float | None:
        return statistics.fmean(self.footers) if self.footers else None


def _at(corpus: Corpus, line: str, number: int, dtype: str | None = None) -> Callable[[], Model]:
    def get() -> Model:
        model = models.load(corpus.files(line)[number - 1])
        return model if dtype is None else models.cast(model, dtype)

    return get


def lenet_rows(corpus: Corpus) -> list[Row]:
    def chain(line: str) -> list[Pair]:
        return [(_at(corpus, line, n), _at(corpus, line, n - 1)) for n in range(2, 13)]

    end = _at(corpus, "sgd", 12)
    return [
        Row("LeNet fp32, materialised", [(_at(corpus, "adam", 12), None), (end, None)], 0.83),
        Row("LeNet Adam chain, mean", chain("adam"), 0.565, 0.56),
        Row("LeNet Adam 12 given 11", chain("adam")[-1:]),
        Row("LeNet SGD chain, mean", chain("sgd"), 0.55, 0.53),
        Row("LeNet SGD 12 given 11", chain("sgd")[-1:]),
        Row("LeNet fine-tune, 5 labels", [(_at(corpus, "labels", 1), end)], 0.605),
        Row("LeNet fine-tune, parity", [(_at(corpus, "parity", 1), end)], 0.485),
        Row("LeNet fine-tune, last layer only", [(_at(corpus, "last", 1), end)], 0.0085),
        Row(
            "LeNet retrained, other seeds",
            [
                (_at(corpus, "retrained-adam", 12), _at(corpus, "adam", 12)),
                (_at(corpus, "retrained-sgd", 12), end),
            ],
        ),
    ]


def minilm_rows(corpus: Corpus) -> list[Row]:
    base = _at(corpus, "base", 1)
    half = "bfloat16"
    decay, fast = _at(corpus, "decay", 4), _at(corpus, "fast", 4)
    bf_base, bf_decay = _at(corpus, "base", 1, half), _at(corpus, "decay", 4, half)
    return [
        Row("MiniLM fp32, materialised", [(base, None)], 0.82),
        Row("MiniLM bf16, materialised", [(bf_base, None)], 0.67),
        Row("MiniLM AdamW 2e-5 given base", [(decay, base)], 0.305),
        Row("MiniLM AdamW 2e-5, next checkpoint", [(decay, _at(corpus, "decay", 3))], 0.28),
        Row("MiniLM AdamW 1e-4 given base", [(fast, base)], 0.34),
        Row("MiniLM AdamW 1e-4, next checkpoint", [(fast, _at(corpus, "fast", 3))], 0.315),
        Row("MiniLM half frozen given base", [(_at(corpus, "frozen", 1), base)]),
        Row("MiniLM merged rank-8 LoRA given base", [(_at(corpus, "lora", 1), base)], 0.006),
        Row("MiniLM bf16 2e-5 given base", [(bf_decay, bf_base)], 0.10),
        Row("MiniLM bf16, next checkpoint", [(bf_decay, _at(corpus, "decay", 3, half))], 0.065),
    ]


def by_peer(peer: Peer, target: Model, base: Model | None, figure: Figure) -> None:
    """A peer on every matrix of a model; decoded again and compared."""
    stored = 0
    for name, held in target.items():
        below = None if base is None else base.get(name)
        if below is not None and (below.dtype, below.shape) != (held.dtype, held.shape):
            below = None
        used = _materialised(peer) if peer.delta and below is None else peer
        begun = time.process_time()
        blob = used.encode(held, below)
        encoded = time.process_time()
        back = used.decode(blob, held, below)
        decoded = time.process_time()
        if back != held.raw:
            raise SystemExit(f"{peer.name} gave back wrong bits for {name}")
        figure.encode += encoded - begun
        figure.decode += decoded - encoded
        stored += sum(map(len, blob))
    figure.ratios.append(stored / models.size(target))
    figure.raw += models.size(target)


def _materialised(peer: Peer) -> Peer:
    """What a delta peer does with a matrix that has no base: the same coder on it alone."""
    after = peer.name.rpartition("+ ")[2].partition(" (")[0]
    for other in ALONE:
        if other.name.partition(" (")[0] == after:
            return other
    return next(other for other in ALONE if other.name == "zstd-3 planes")


def by_dlv(tier: ours.Tier, target: Model, base: Model | None, figure: Figure) -> None:
    stored = ours.store(target, base, tier, check=tier == "normal")
    raw = models.size(target)
    figure.ratios.append(stored.per_matrix / raw)
    figure.footers.append(stored.memory.bytes / raw)
    figure.above += stored.above
    figure.encode += stored.encode
    figure.search += stored.search
    if tier == "fast":
        figure.check += stored.check
    figure.decode += stored.decode
    figure.raw += raw


def warm_up(*, with_numba: bool) -> None:
    """What is compiled or imported on first use is no part of any speed."""
    compiled.force[:] = [with_numba]
    if with_numba and compiled.loops() is None:
        raise SystemExit("numba is not installed: pip install 'dlv[fast]'")
    rng = np.random.default_rng(0)
    base = models.matrix(rng.normal(0, 0.05, (400, 300)).astype(np.float32))
    moved = models.matrix(base.array() + rng.normal(0, 1e-4, (400, 300)).astype(np.float32))
    for dtype in ("float32", "bfloat16"):
        target: Model = {"w": moved}
        under: Model = {"w": base}
        if dtype != "float32":
            target, under = models.cast(target, dtype), models.cast(under, dtype)
        ours.store(target, under, "fast")
        ours.store(target, under, "small")
    contexts = np.zeros(4000, np.uint8)
    packed = ContextPacked(0, "0" * 64)
    packed.decode(packed.encode(bytes(4000), contexts), contexts)
    words = np.frombuffer(moved.raw, "<u4")
    Drift(np.ones(DRIFT_BINS, np.int32), np.ones(400, np.bool_), 300).apply(words, 0)
    loops = compiled.loops()
    cold = [] if loops is None else [n for n, f in vars(loops).items() if not f.signatures]
    assert not cold, f"these would be compiled while times are taken: {cold}"


def measure(row: Row, *, high: bool, peers: bool = True) -> dict[str, Figure]:
    """Every way on every pair of a row."""
    figures: dict[str, Figure] = {}
    tiers: list[ours.Tier] = ["fast", "normal"]
    if high and row.high_goal is not None:
        tiers.append("high")
    for get_target, get_base in row.pairs:
        target = get_target()
        base = None if get_base is None else get_base()
        for peer in (ALONE if base is None else AGAINST) if peers else ():
            by_peer(peer, target, base, figures.setdefault(peer.name, Figure()))
        for tier in tiers:
            by_dlv(tier, target, base, figures.setdefault(f"dlv {tier}", Figure()))
    return figures
