"""Progressive evaluation: every label is the reference's, from no more bytes than it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import dlv.evaluation.progressive as progressive_module
import dlv.pas.chunks as chunks
from benchmarks.progressive.completions import Cells
from dlv.evaluation.answers import OPEN, Answers, NoBounds, Progress, Settings
from dlv.evaluation.planes import Planes
from dlv.evaluation.progressive import progressive
from dlv.network.forward import Forward
from dlv.network.graph import Network
from dlv.network.ops.activation import Relu
from dlv.network.ops.op import NoRule
from dlv.network.program import program
from dlv.network.torch.module import build
from dlv.weights.bounds import NoRecord
from tests.evaluation.stored_models import (
    SmallRows,
    StoredModel,
    any_completion,
    fresh,
    full,
    mlp,
    network_of,
    plain,
    stored_model,
    trained,
)

Array = NDArray[Any]
F32 = np.finfo(np.float32)
BEYOND = 1e30  # float32 may overflow on the way to such scores


def told(model: StoredModel, x: Array, **asked: Any) -> Answers:
    return progressive(model, SmallRows(x), Settings(**asked), model.record)


def consistent(found: Answers, rows: int) -> None:
    """Levels read more and leave fewer rows open."""
    before = (0, 0, rows)
    for level in found.levels:
        assert level.determined + level.open == rows
        assert before[0] < level.bytes_read
        assert level.open <= before[2]
        assert 0 < level.share <= 1
        before = (level.bytes_read, level.determined, level.open)
    assert found.bytes_read == before[0]
    assert found.open == before[2]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of what the pack reader was asked for."""
    found: list[int] = []
    original = chunks.read_exactly

    def counted(descriptor: int, length: int, offset: int, what: str) -> bytes:
        found.append(length)
        return original(descriptor, length, offset, what)

    monkeypatch.setattr(chunks, "read_exactly", counted)
    return found


@pytest.mark.parametrize("kind", ["mlp", "cnn", "bn"])
@pytest.mark.parametrize("layout", ["fixed", "ieee"])
@pytest.mark.parametrize("tighten", [False, True])
def test_labels_are_those_of_the_reference(
    tmp_path: Path, kind: str, layout: str, tighten: bool
) -> None:
    network, tensors, x, _ = trained(kind)
    model = stored_model(tmp_path, network, tensors, x=x, layout=layout)
    right = model.scores(x).argmax(1)
    for reference in ("f64", "strict"):
        if kind == "bn" and reference == "strict":
            with pytest.raises(NoBounds, match="batch normalization"):
                told(model, x, reference=reference)
            continue
        found = told(model, x, reference=reference, tighten=tighten, batch=100)
        assert (found.labels == right).all()
        assert found.fallback is None
        assert found.mode == "progressive"
        assert found.reference == reference
        consistent(found, len(x))
        early = [level.determined for level in found.levels if level.share < 0.8]
        assert max(early) > (0.9 if layout == "fixed" else 0.6) * len(x)


@pytest.mark.parametrize("tighten", [False, True])
def test_what_was_read_is_what_the_pack_reader_gave(
    tmp_path: Path, reads: list[int], tighten: bool
) -> None:
    network, tensors, x, _ = trained("mlp")
    model = stored_model(tmp_path, network, tensors, x=x)
    record = len(packs_bytes(model, model.record.hash))
    whole = Planes(model.store, model.hashes)
    whole.read({name: whole.planes(name) for name in whole.names})
    for rows in (x, x[:1], x[7:9]):
        reads.clear()
        found = told(model, rows, tighten=tighten)
        # The record was read by whoever hands it in.
        assert found.bytes_read == sum(reads) + record
        early = [level for level in found.levels if level.determined and level.share < 1]
        # Whatever was told before the end was told from fewer bytes than a plain evaluation reads.
        assert early
        assert all(level.bytes_read < whole.bytes_read for level in early)


def packs_bytes(model: StoredModel, name: str) -> bytes:
    return b"".join(model.store.stored(p) for p in model.store.object_chunks("bounds", name))


def test_no_row_needs_more_than_was_read_for_it(tmp_path: Path) -> None:
    """Alone, a row is told from the same level as among others."""
    network, tensors, x, _ = trained("cnn")
    model = stored_model(tmp_path, network, tensors, x=x)
    together = told(model, x[:40])
    counts = [level.determined for level in together.levels]
    alone = [told(model, x[at : at + 1]) for at in range(40)]
    assert [each.labels[0] for each in alone] == list(together.labels)
    reached = [sum(len(each.levels) <= n + 1 for each in alone) for n in range(len(counts))]
    assert reached == counts
    assert counts[0] > 0


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
@pytest.mark.parametrize("depth", [1, 2])
def test_no_completion_of_the_unread_bits_has_another_label(
    tmp_path: Path, kind: str, depth: int
) -> None:
    """With bounds that hold for all completions, drawn ones and the worst to first order."""
    network, tensors, x, _ = trained(kind)
    x = x[:200]
    model = stored_model(tmp_path, network, tensors, x=x, schedule=(depth,), change=any_completion)
    early = 0
    for tighten in (False, True):
        found = told(model, x, tighten=tighten, max_bytes=most(model, x))
        sure = found.labels != OPEN
        early += int(sure.sum())
        for changed in completions(model, x, depth, found.labels):
            assert (model.scores(x, changed).argmax(1)[sure] == found.labels[sure]).all()
    assert early > 20 if depth == 2 else early >= 0


def most(model: StoredModel, x: Array) -> int:
    """Bytes of all levels but the whole."""
    levels = told(model, x).levels
    return max(level.bytes_read for level in levels if level.share < 1)


def completions(
    model: StoredModel, x: Array, depth: int, labels: Array
) -> Iterator[dict[str, Array]]:
    rng = np.random.default_rng(0)
    names = list(model.program.matrices)
    cells = {name: Cells(model.tensors[name], "fixed", depth) for name in names}
    for _ in range(3):
        yield {name: cells[name].random(rng) for name in names}
        yield {name: cells[name].ends(rng) for name in names}
    for row in np.flatnonzero(labels != OPEN)[:12]:
        scores = model.scores(x[row : row + 1])[0]
        order = np.argsort(-scores)
        gradient = gradients(model, x[row : row + 1], order[0], order[1])
        yield {name: cells[name].against(gradient[name]) for name in names}


def gradients(model: StoredModel, x: Array, up: int, down: int) -> dict[str, Array]:
    held = {name: torch.from_numpy(each.astype("f8")) for name, each in model.tensors.items()}
    module: Any = build(model.network, held, {})
    module.eval()
    scores = module(torch.from_numpy(np.array(x, "f8")))[0]
    torch.autograd.backward(scores[up] - scores[down])
    found = dict(module.named_parameters())
    return {name: found[name].grad.numpy() for name in model.program.matrices}


def test_bounds_that_are_too_small_are_found_out(tmp_path: Path) -> None:
    """The tests above can fail: with a hundredth of the norms wrong labels are told."""
    network, tensors, x, _ = trained("cnn")
    model = stored_model(tmp_path, network, tensors, x=x)
    right = model.scores(x).argmax(1)
    nodes = []
    for node in model.record.nodes:
        levels = [
            replace(each, dn=each.dn / 100, drows=tuple(row / 100 for row in each.drows or ()))
            for each in node.levels
        ]
        opn, any_size = node.opn / 100, node.opn_any / 100
        nodes.append(replace(node, opn=opn, opn_any=any_size, levels=tuple(levels)))
    found = progressive(model, SmallRows(x), Settings(), replace(model.record, nodes=tuple(nodes)))
    assert (found.labels != right).any()


def tied_mlp() -> tuple[Network, dict[str, Array]]:
    """Classes 2 and 5 have the same weights, and 7 nearly the same."""
    network, shapes = mlp(24)
    tensors = fresh(shapes, 3)
    tensors["fc3.weight"][5] = tensors["fc3.weight"][2]
    tensors["fc3.bias"][5] = tensors["fc3.bias"][2] = 3.0
    tensors["fc3.weight"][7] = tensors["fc3.weight"][2]
    tensors["fc3.weight"][7, 0] = np.nextafter(tensors["fc3.weight"][7, 0], np.float32(9))
    tensors["fc3.bias"][7] = 2.0
    return network, tensors


@pytest.mark.parametrize("tighten", [False, True])
def test_ties_get_the_first_index_of_the_reference(tmp_path: Path, tighten: bool) -> None:
    network, tensors = tied_mlp()
    x = np.abs(np.random.default_rng(0).normal(size=(150, 64))).astype(np.float32)
    model = stored_model(tmp_path, network, tensors, x=x)
    found = told(model, x, tighten=tighten, batch=32)
    plain_labels = plainly(model, x, 32)
    assert (found.labels == plain_labels).all()
    tied = found.labels == 2
    assert tied.any()
    assert not (found.labels == 5).any()
    # None of them is told before all is read.
    assert found.levels[-1].share == 1
    assert found.levels[-2].open >= tied.sum()


def plainly(model: StoredModel, x: Array, batch: int) -> Array:
    forward = Forward(model.program, lambda name: model.tensors[name].astype("f8"))
    parts = [forward({"x": x[at : at + batch]}).argmax(1) for at in range(0, len(x), batch)]
    return np.concatenate(parts)


def test_inputs_that_are_no_numbers_stay_open_until_the_end(tmp_path: Path) -> None:
    network, tensors, x, _ = trained("cnn")
    x = x[:50].copy()
    x[3, 0, 2, 2] = np.nan
    x[4, 0, 2, 2] = np.inf
    x[5] = -np.inf
    x[6] = 1e300 if x.dtype == np.float64 else F32.max
    x[7] = 0
    x[8] = F32.smallest_subnormal
    model = stored_model(tmp_path, network, tensors, x=x)
    for tighten in (False, True):
        found = told(model, x, tighten=tighten)
        scores = model.scores(x)
        unknown = np.asarray(np.isnan(scores).any(1))
        assert unknown[[3, 5]].all()
        assert (found.labels[unknown] == OPEN).all()
        assert found.not_finite == unknown.sum()
        assert found.open == 0
        assert (found.labels[~unknown] == scores.argmax(1)[~unknown]).all()
        partial = [level for level in found.levels if level.share < 1]
        assert partial[0].determined > 0
        assert partial[-1].open >= unknown.sum()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 20), st.sampled_from(["f64", "strict"]), st.sampled_from([1, 2, 3]))
def test_weights_of_all_sizes(
    tmp_path_factory: pytest.TempPathFactory, seed: int, reference: str, top_k: int
) -> None:
    """Rows of zeros, huge and denormal ones, and a classifier that is nearly tied."""
    rng = np.random.default_rng(seed)
    network, shapes = mlp(12)
    tensors = fresh(shapes, seed)
    for name, array in tensors.items():
        rows = array.reshape(len(array), -1)
        for _ in range(rng.integers(0, 3)):
            size = rng.choice([0.0, 1e-42, 1e-38, 1e-20, 1e6, 1e20])
            at = rng.integers(len(rows))
            rows[at] = (rows[at] * np.float64(size)).clip(-1e38, 1e38)
        if name == "fc3.weight":
            array[rng.integers(10)] = array[rng.integers(10)]
    x = (rng.normal(size=(40, 64)) * 10.0 ** rng.integers(-3, 3)).astype(np.float32)
    model = stored_model(tmp_path_factory.mktemp("m"), network, tensors, x=x)
    scores = model.scores(x)
    with suppress(NoBounds):  # where the record alone is larger than what it could save
        right_where_told(model, x, scores, reference, top_k, tighten=bool(seed % 2))


@pytest.mark.parametrize("tighten", [False, True])
@pytest.mark.parametrize("top_k", [1, 2])
def test_where_float32_overflows_nothing_is_told_early(
    tmp_path: Path, tighten: bool, top_k: int
) -> None:
    """Scores far apart in float64 that no float32 evaluation has."""
    network, shapes = mlp(12)
    tensors = fresh(shapes, 3)
    tensors["fc1.weight"][:6] *= np.float32(1e20)
    tensors["fc2.weight"][10] *= np.float32(1e20)
    x = np.random.default_rng(3).normal(size=(40, 64)).astype(np.float32)
    model = stored_model(tmp_path, network, tensors, x=x)
    beyond = np.abs(model.scores(x)).max(1) > F32.max
    assert beyond.any()
    early = told(model, x, tighten=tighten, top_k=top_k).levels[0].determined
    with suppress(NoBounds):
        found = told(model, x[beyond], reference="strict", tighten=tighten, top_k=top_k)
        assert all(level.determined == 0 for level in found.levels if level.share < 1)
    assert not tighten or early  # in float64 they are told


def right_where_told(
    model: StoredModel, x: Array, scores: Array, reference: str, top_k: int, *, tighten: bool
) -> None:
    found = told(model, x, reference=reference, top_k=top_k, tighten=tighten)
    early = found.levels[-1].share < 1
    held = np.sort(scores, axis=1)
    near = held[:, -1] - held[:, -2] <= 1e-9 * (1 + np.abs(scores).max(1))
    if reference == "strict":
        near |= held[:, -1] - held[:, -2] <= 1e-3 * (1 + np.abs(scores).max(1))
        # Beyond the range of float32 a sum hangs on its order altogether.
        near |= ~np.isfinite(model.scores(x, dtype=torch.float32)).all(1)
        near |= np.abs(scores).max(1) > BEYOND
    labels = found.labels
    assert (labels[~near & (labels != OPEN)] == scores.argmax(1)[~near & (labels != OPEN)]).all()
    if top_k > 1:
        assert found.sets is not None
        apart = held[:, -top_k] - held[:, -top_k - 1] > 1e-3 * (1 + np.abs(scores).max(1))
        apart &= np.isfinite(model.scores(x, dtype=torch.float32)).all(1)
        apart &= (reference != "strict") | (np.abs(scores).max(1) < BEYOND)
        right = np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :top_k], axis=1)
        assert (np.sort(found.sets, axis=1)[apart] == right[apart]).all()
    assert early or found.open == 0


def test_sets_of_the_first_classes(tmp_path: Path) -> None:
    network, tensors, x, _ = trained("mlp")
    model = stored_model(tmp_path, network, tensors, x=x)
    scores = model.scores(x)
    right = np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :3], axis=1)
    found = told(model, x, top_k=3)
    assert found.sets is not None
    assert (np.sort(found.sets, axis=1) == right).all()
    known = found.labels != OPEN
    assert (found.labels[known] == scores.argmax(1)[known]).all()
    # A set is harder than a label.
    assert found.levels[0].determined < told(model, x).levels[0].determined
    everything = told(model, x, top_k=10)
    assert everything.levels[0].open == 0


def test_reading_ends_at_the_most_bytes(tmp_path: Path, reads: list[int]) -> None:
    network, tensors, x, _ = trained("cnn")
    model = stored_model(tmp_path, network, tensors, x=x)
    right = model.scores(x).argmax(1)
    levels = told(model, x).levels
    record = len(packs_bytes(model, model.record.hash))
    limits = [0, levels[0].bytes_read - 1, *(level.bytes_read for level in levels)]
    for limit in limits:
        reads.clear()
        found = told(model, x, max_bytes=limit)
        assert sum(reads) <= max(limit - record, 0)
        assert found.bytes_read <= max(limit, record)
        reached = [level for level in levels if level.bytes_read <= limit]
        assert found.levels == reached
        sure = found.labels != OPEN
        assert found.open == (~sure).sum() == (reached[-1].open if reached else len(x))
        assert (found.labels[sure] == right[sure]).all()


def test_rows_are_streamed_again_for_each_level(tmp_path: Path) -> None:
    network, tensors, x, _ = trained("cnn")
    model = stored_model(tmp_path, network, tensors, x=x)
    for size in (1, 7, 64, 1000):
        rows = SmallRows(x[:130])
        found = progressive(model, rows, Settings(batch=size), model.record)
        assert (found.labels == model.scores(x[:130]).argmax(1)).all()
        assert len(found.levels) < rows.passes <= 2 + 2 * len(found.levels)


def test_what_is_watched(tmp_path: Path) -> None:
    network, tensors, x, _ = trained("cnn")
    model = stored_model(tmp_path, network, tensors, x=x)
    seen: list[Progress] = []
    found = told(model, x, watch=seen.append)
    assert [each.done for each in seen] == sorted(each.done for each in seen)
    assert len(seen) >= len(found.levels)
    assert all(each.rows == len(x) for each in seen)
    assert seen[-1].done == len(x)
    assert seen[-1].bytes_read == found.bytes_read


def test_no_rows(tmp_path: Path) -> None:
    network, tensors, x, _ = trained("mlp")
    model = stored_model(tmp_path, network, tensors, x=x)
    found = told(model, x[:0])
    assert len(found.labels) == found.open == 0
    assert found.levels == []


def refused(model: StoredModel, x: Array, reads: list[int], **asked: Any) -> str:
    """Why nothing is told early; and nothing may have been read then."""
    reads.clear()
    with pytest.raises(NoBounds) as caught:
        told(model, x, **asked)
    assert reads == []
    return caught.value.why


def test_why_all_has_to_be_read(tmp_path: Path, reads: list[int]) -> None:
    network, tensors, x, _ = trained("mlp")
    model = stored_model(
        tmp_path / "a", network, tensors, x=x, helps={"f64": False, "strict": True}
    )
    assert "does not help" in refused(model, x, reads)
    with pytest.raises(NoBounds, match="no bounds are stored"):
        progressive(model, SmallRows(x), Settings(), NoRecord("no bounds are stored"))
    odd = replace(model, record=replace(model.record, suffix={"classes": 10}))
    assert "cannot be read" in refused(odd, x, reads)
    infinite = {**tensors, "fc2.weight": tensors["fc2.weight"].copy()}
    infinite["fc2.weight"][1, 1] = np.inf
    with np.errstate(all="ignore"):
        model = stored_model(tmp_path / "b", network, infinite, x=x, layout="ieee")
    assert "not finite" in refused(model, x, reads)
    wide = {name: each.astype(np.float64) for name, each in tensors.items()}
    model = stored_model(tmp_path / "c", network, wide, x=x)
    assert "float64" in refused(model, x, reads, reference="strict")
    assert (told(model, x).labels == model.scores(x).argmax(1)).all()
    wordy = replace(model.record, nodes=model.record.nodes[:1])
    model = replace(model, record=wordy)
    assert "norms" in refused(model, x, reads)


def test_an_operation_without_a_rule_is_named_before_anything_is_read(
    tmp_path: Path, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    network, tensors, x, _ = trained("mlp")
    model = stored_model(tmp_path, network, tensors, x=x)

    def none(self: Relu, node: Any, run: Any) -> Any:
        raise NoRule(node)

    monkeypatch.setattr(Relu, "bounds", none)
    assert refused(model, x, reads) == "`r1` (RELU): no bound is known for it"


def test_a_rule_that_ends_on_the_way_leaves_rows_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, tensors, x, _ = trained("mlp")
    model = stored_model(tmp_path, network, tensors, x=x)
    original: Callable[..., Any] = Relu.bounds
    calls = []

    def sometimes(self: Relu, node: Any, run: Any) -> Any:
        calls.append(node)
        if len(calls) > 8:
            raise NoRule(node, "enough")
        return original(self, node, run)

    monkeypatch.setattr(Relu, "bounds", sometimes)
    found = told(model, x)
    assert found.fallback is not None
    assert "enough" in found.fallback
    assert (found.labels == model.scores(x).argmax(1)).all()
    assert [level.share for level in found.levels][-1] == 1


def test_an_archive_meanwhile_leaves_rows_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, tensors, x, _ = trained("cnn")
    model = stored_model(tmp_path, network, tensors, x=x)
    index: Any = model.store.index
    matrix = model.hashes["fc.weight"]
    original = progressive_module.BallJudge.verdicts

    def meanwhile(self: Any, inputs: Any) -> Any:
        old = index.encodings[matrix]
        index.encodings[matrix] = replace(old, layout={**old.layout, "zero_centre": True})
        return original(self, inputs)

    monkeypatch.setattr(progressive_module.BallJudge, "verdicts", meanwhile)
    found = told(model, x)
    assert found.fallback == "`fc.weight` was archived by another dlv process"
    assert (found.labels == model.scores(x).argmax(1)).all()


def test_norms_of_another_weight_are_not_believed(tmp_path: Path) -> None:
    """As of one without the normalisation that this program folds into it."""
    network, tensors, x, _ = trained("bn")
    model = stored_model(tmp_path, network, tensors, x=x)
    plainly = program(network, fold=False)
    assert len(plainly.linear) == len(model.program.linear)
    assert len(plainly.steps) > len(model.program.steps)
    found = told(replace(model, program=plainly), x)
    assert found.fallback == "`c1` (CONV): the stored norms are not those of its weight"
    assert (found.labels == model.scores(x).argmax(1)).all()


def test_a_weight_with_another_use_is_read_whole(tmp_path: Path) -> None:
    """Bounds speak of linear nodes alone: a weight that is also added must be exact."""
    nodes = [full("a", "x", 64), plain("r", "RELU", "a")]
    nodes.append(plain("p", "ADD", "r", attrs={"shape": [1, 64]}, params={"value": "p.value"}))
    nodes.append(full("f", "p", 5))
    rng = np.random.default_rng(0)
    network = network_of(nodes, (64,))
    tensors = {
        "a.weight": rng.normal(size=(64, 64)), "a.bias": rng.normal(size=64),
        "f.weight": rng.normal(size=(5, 64)), "f.bias": rng.normal(size=5),
        "p.value": rng.normal(size=(1, 64)),
    }  # fmt: skip
    tensors = {name: each.astype(np.float32) for name, each in tensors.items()}
    x = rng.normal(size=(60, 64)).astype(np.float32)
    model = stored_model(tmp_path, network, tensors, x=x)
    planes = progressive_module.planes_of(model)
    depths = progressive_module.depths_of(model.record, model.program, planes)[0]
    assert depths == {"a.weight": 1, "f.weight": 1, "a.bias": 4, "f.bias": 4, "p.value": 4}
    found = told(model, x)
    assert (found.labels == model.scores(x).argmax(1)).all()


def test_one_length_of_batch(tmp_path: Path) -> None:
    network, tensors, x, _ = trained("mlp")
    fixed = replace(network, inputs=(replace(network.inputs[0], shape=(25, 64)),))
    model = stored_model(tmp_path, fixed, tensors, x=x)
    found = progressive(model, SmallRows(x[:200]), Settings(batch=25), model.record)
    assert (found.labels == model.scores(x[:200]).argmax(1)).all()
    consistent(found, 200)
