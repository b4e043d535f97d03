"""Everything about one network; what is found is printed on the way."""

from __future__ import annotations

from typing import Any

import zstandard

import dlv.weights.bounds as bounds
from benchmarks.progressive import goals, measure, paper, times
from benchmarks.progressive.goals import Verdict
from benchmarks.progressive.measure import Committed, Verdicts, told
from benchmarks.storage.models import Model
from dlv.evaluation.model import Model as Stored
from dlv.pas.layouts.fixed import Fixed
from dlv.pas.layouts.registry import default_layout
from dlv.pas.layouts.segments import split_matrix
from dlv.repository.handle import Repository

LAYOUTS: tuple[paper.Layout, ...] = ("ieee", "fixed")
# Deeper networks than these are not told from less than everything for every float32 evaluation.
STRICT = ("mlp", "lenet")


def measured(committed: Committed, verdicts: list[Verdict], *, timed: bool) -> dict[str, Any]:
    net = committed.net
    print(f"\n{net.title}: committed with bounds in {committed.seconds:.1f} s")
    with measure.counted() as reader:
        full = committed.evaluate(committed.test())
    found: dict[str, Any] = {
        "commit_seconds": committed.seconds,
        "accuracy": full.accuracy,
        "bytes_whole": full.bytes_whole,
        "reader_whole": reader.once,
    }
    print(f"  accuracy {full.accuracy:.4f}; from all weights {reader.once} bytes of packs read")
    ways = by_dlv(committed)
    found["dlv"] = {way: as_json(each) for way, each in ways.items()}
    found["wrong"] = sum(each.wrong for each in ways.values())
    for way, each in ways.items():
        print_levels(way, each)
        least_bytes(net.name, way, each, reader.once, verdicts)
    for part in goals.PARTS[net.name]:
        goal = f"{part.way}: part told from {100 * part.share:g} % of the bits"
        part_told = ways[part.way].at(part.share + goals.HAIR)
        verdicts.append(goals.least(net.name, goal, part_told, part.told))
    if net.side is not None or net.flat:
        found["paper"] = by_paper(committed)
    found["calibrated"] = by_completions(committed, verdicts)
    found["planes"] = planes_of(committed.model)
    share = found["planes"]["fixed"] / found["planes"]["ieee"]
    print(f"  planes under zstd -9: fixed / ieee {share:.4f}")
    verdicts.append(goals.most(net.name, "fixed planes / ieee planes", share, 1.0))
    found["record"] = record_bytes(committed)
    side = found["record"] / full.bytes_whole
    print(f"  bounds record: {found['record']} bytes, {100 * side:.2f} % of the weights'")
    verdicts.append(goals.most(net.name, "bounds record / bytes of weights", side, goals.SIDE))
    if timed:
        found["times"] = clock(committed, verdicts)
    return found


def by_dlv(committed: Committed) -> dict[str, Verdicts]:
    """Progressive evaluations of the test rows, by reference, and with the first five classes."""
    test, x = committed.test(), committed.data.test_x
    ways = {"f64": told(committed, test, x, progressive="guaranteed")}
    strict = committed.net.name in STRICT
    if strict:
        ways["strict"] = told(committed, test, x, progressive="guaranteed", strict=True)
    # Of any float32 evaluation the rounding counts, which is bounded closer backwards.
    asked: dict[str, Any] = {"strict": strict, "tighten": strict}
    ways["top-5"] = told(committed, test, x, 5, progressive="guaranteed", **asked)
    return ways


def as_json(each: Verdicts) -> dict[str, Any]:
    return {
        "levels": [vars(point) for point in each.points],
        "wrong": each.wrong,
        "fallback": each.fallback,
        "seconds": each.seconds,
        "bytes_read": each.bytes_read,
        "reader": each.reader.once,
    }


def print_levels(way: str, each: Verdicts) -> None:
    for point in each.points:
        print(
            f"  dlv, {way:<7}{100 * point.determined:>7.2f} % told from {100 * point.share:6.2f} %"
            f" of the bits, {100 * point.raw:6.2f} % of raw bytes,"
            f" {100 * point.encoded:6.2f} % of stored bytes"
        )
    if each.fallback is not None:
        print(f"  dlv, {way}: from everything, as {each.fallback}")
    print(f"  dlv, {way:<7}{each.wrong} wrong; {each.reader.once} bytes of packs read")


def least_bytes(net: str, way: str, each: Verdicts, whole: int, verdicts: list[Verdict]) -> None:
    """Rows told before the last level must have cost less than all of the weights."""
    partial = [point for point in each.points if point.share < 1 and point.determined > 0]
    if partial:
        most = partial[-1].encoded
        verdicts.append(goals.most(net, f"{way}: bytes read for told rows / all", most, 1.0))
    if each.points and each.points[-1].share < 1:
        verdicts.append(
            goals.most(net, f"{way}: bytes at the pack reader / all", each.reader.once / whole, 1)
        )


def by_paper(committed: Committed) -> dict[str, dict[int, float]]:
    """The part of the rows that the paper's intervals tell, by layout and planes."""
    tensors = {name: held.array() for name, held in committed.model.items()}
    network, x = committed.net.network(), committed.data.test_x
    truth = committed.truth(x).argmax(1)
    found: dict[str, dict[int, float]] = {}
    for layout in LAYOUTS:
        for planes in range(1, paper.PLANES):
            low, high = paper.scores(network, tensors, layout, planes, x)
            sure = paper.determined(low, high)
            if (paper.labels(low)[sure] != truth[sure]).any():
                raise SystemExit(f"the paper's method tells wrong labels of {committed.net.title}")
            found.setdefault(layout, {})[planes] = float(sure.mean())
        parts = "  ".join(f"{k} of 4 planes {100 * p:.1f}" for k, p in found[layout].items())
        print(f"  paper, {layout:<6}% told: {parts}")
    return found


def by_completions(committed: Committed, verdicts: list[Verdict]) -> dict[str, Any]:
    """The calibrated mode on the test rows, and on as many mixes of two of them."""
    x, mixes = committed.data.test_x, committed.data.mixes()
    rows = committed.file("mixes", mixes)
    clean = told(committed, committed.test(), x, progressive="calibrated")
    mixed = told(committed, rows, mixes, progressive="calibrated")
    first, net = clean.points[0], committed.net.name
    print(
        f"  calibrated: {100 * first.determined:.2f} % told from {100 * first.share:.2f} % of the"
        f" bits, {clean.wrong} wrong; of mixes {100 * mixed.points[0].determined:.2f} %,"
        f" {mixed.wrong} wrong"
    )
    if net in goals.CALIBRATED:
        # From one plane of the large matrices; the smallest ones, to 2 %, are read whole.
        part = clean.at(0.25 + 0.02)
        goal = "calibrated: part told from 25 % of the bits"
        verdicts.append(goals.least(net, goal, part, goals.CALIBRATED[net]))
        wrong = clean.wrong + mixed.wrong
        goal = f"calibrated: wrong of {clean.rows + mixed.rows} = 0"
        verdicts.append(Verdict(net, goal, str(wrong), wrong == 0))
    return {"clean": as_json(clean), "mixes": as_json(mixed)}


def planes_of(model: Model) -> dict[str, int]:
    """Bytes of the planes of all weight matrices under zstd, in both layouts."""
    sizes = {"ieee": 0, "fixed": 0}
    press = zstandard.ZstdCompressor(level=9).compress
    for name, held in model.items():
        if not measure.is_weight(name, held.shape):
            continue
        fixed = Fixed.of([held.raw], held.dtype, held.shape)
        for layout, way in (("ieee", default_layout()), ("fixed", fixed)):
            planes, side = split_matrix(way, held.raw, held.dtype, held.shape)
            sizes[layout] += sum(len(press(bytes(plane))) for plane in [*planes, side] if plane)
    return sizes


def record_bytes(committed: Committed) -> int:
    """What the bounds record takes in its pack."""
    with Repository.find(committed.folder) as repository:
        model = Stored.of(repository, committed.net.name)
        record = bounds.record_of(repository.database, model.store, model.manifest, model.snapshot)
        if isinstance(record, bounds.NoRecord):
            raise SystemExit(f"{committed.net.title}: {record.why}")
        pieces = model.store.object_chunks(bounds.KIND, record.hash)
        model.store.close()
        return sum(piece.length for piece in pieces)


def clock(committed: Committed, verdicts: list[Verdict]) -> dict[str, Any]:
    net = committed.net.name
    found = times.against_load_and_full(committed)
    told_times = "  ".join(f"{batch} rows {part:.2f}" for batch, part in found.items())
    print(f"  time / load and run everything: {told_times}")
    if net in goals.FASTER:
        limit, largest = goals.FASTER[net]
        for batch in (batch for batch in found if batch <= largest):
            goal = f"time / load and full, {batch} rows"
            verdicts.append(goals.most(net, goal, found[batch], limit))
    passes = times.passes(committed)
    if passes is not None:
        print(f"  a pass with bounds / a plain one: {passes:.3f}")
        if net in goals.PASS:
            limit = goals.PASS[net]
            verdicts.append(goals.most(net, "pass with bounds / plain pass", passes, limit))
    return {"against_load_and_full": found, "pass": passes}
