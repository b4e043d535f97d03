"""Bounds made for trained networks, kept by later archives, found again, and checked."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import dlv.archiving.reencode as reencode
import dlv.disk.durable as durable
import dlv.metadata.matrices as matrix_rows
import dlv.recovery.rebuild as rebuild
import dlv.repository.revisions as revisions
import dlv.upkeep.check as check
from dlv.archiving.archive import Archived
from dlv.archiving.bounding.make import Model
from dlv.archiving.bounding.run import Outcome, write_bounds
from dlv.archiving.bounding.view import View
from dlv.archiving.reencode import Packing
from dlv.canonical import matrix_hash
from dlv.errors import UsageError
from dlv.network.bounds.ball import F64, REFERENCES
from dlv.network.bounds.interval import Balls, certain
from dlv.network.forward import Forward
from dlv.network.suffix.record import suffix_from_json
from dlv.objects.manifest import Manifest
from dlv.pas.chunks import SUFFIX
from dlv.pas.level import Level
from dlv.repository.handle import Repository
from dlv.versions.remove import remove
from dlv.weights.bounds import NoRecord, Record, hashes_of, named, pinned, record_of
from dlv.weights.store import MatrixStore, stored_network
from tests.archiving.bounding.nets import MLP, digits, trained

Array = NDArray[Any]
Bound = Callable[..., Outcome]
Commit = Callable[..., str]
Archive = Callable[..., Archived]

EPS = 1e-5
BYTES = (8, 16, 24)
DEPTHS = {"ieee": BYTES, "fixed": BYTES, "halved": (8, 12, 16, 24)}


def version(repository: Repository, reference: str) -> Manifest:
    return repository.manifest(revisions.version(repository.database, reference).id)


def found(repository: Repository, reference: str) -> Record | NoRecord:
    manifest = version(repository, reference)
    assert manifest.own is not None
    store = MatrixStore.of(repository)
    return record_of(repository.database, store, manifest, manifest.snapshots[manifest.own])


def record(repository: Repository, reference: str) -> Record:
    made = found(repository, reference)
    assert isinstance(made, Record), made
    return made


def model(repository: Repository, reference: str) -> Model:
    manifest = version(repository, reference)
    assert manifest.network is not None
    assert manifest.own is not None
    network = stored_network(MatrixStore.of(repository), manifest.network.id)
    return Model.of(manifest, network, hashes_of(manifest, manifest.snapshots[manifest.own]))


def encodings(repository: Repository, reference: str) -> dict[str, Any]:
    store = MatrixStore.of(repository)
    made = model(repository, reference)
    return {name: store.encoding(made.hash(name)) for name in made.program.tensors}


def sound(repository: Repository) -> bool:
    return check.check(repository).faults == []


def centre(repository: Repository, matrix: str, planes: int) -> Array:
    level = MatrixStore.of(repository).level(matrix, planes)
    assert isinstance(level, Level)
    return level.centre


# What is stored


def operator(weight: Array, stride: int) -> Array:
    """A convolution of 8x8 or 12 such maps, pads of 1: what it makes of each unit vector."""
    depth = weight.shape[1]
    units = torch.eye(depth * 64, dtype=torch.float64).reshape(-1, depth, 8, 8)
    made = torch.nn.functional.conv2d(units, torch.from_numpy(weight), padding=1, stride=stride)
    return made.reshape(len(units), -1).T.numpy()


def sigma(matrix: Array) -> float:
    return float(np.linalg.norm(matrix.reshape(len(matrix), -1), 2))


def folded(weights: dict[str, Array], conv2: Array) -> Array:
    scale = weights["norm.weight"] / np.sqrt(weights["norm.running_var"].astype(float) + EPS)
    return conv2.astype(float) * scale[:, None, None, None]


def test_norms_hold_and_are_tight(repository: Repository) -> None:
    """Against SVDs of the folded weights, with the centres that a reader gets."""
    made, weights = record(repository, "conv@1"), trained("conv")[0]
    assert [node.name for node in made.nodes] == ["conv1", "conv2", "fc"]
    hashes = model(repository, "conv@1").hashes
    stored = encodings(repository, "conv@1")
    for node, stride in zip(made.nodes, (1, 2, 0), strict=True):
        name = f"{node.name}.weight"
        whole = weights[name].astype(float)
        fold = node.name == "conv2"
        real = folded(weights, whole) if fold else whole
        opn = sigma(operator(real, stride)) if stride else sigma(real)
        assert opn <= node.opn <= (1.3 if stride else 1 + 1.1e-4) * opn
        assert node.opn <= node.opn_any
        assert np.linalg.norm(real) <= node.fro <= (1 + 1e-6) * np.linalg.norm(real)
        assert np.abs(real).max() <= node.absmax <= (1 + 1.1e-4) * np.abs(real).max()
        depths = DEPTHS[stored[name].layout["id"]]
        assert [level.planes for level in node.levels] == [*range(1, len(depths) + 1)]
        for level in node.levels:
            near = centre(repository, hashes[name], level.planes)
            open_part = real - (folded(weights, near) if fold else near)
            assert sigma(open_part) <= level.dn <= sigma(open_part) * (1 + 1.1e-3)
            assert np.linalg.norm(open_part) <= level.dfro
            if stride:
                assert level.dopn is not None
                assert sigma(operator(open_part, stride)) <= level.dopn
            rows = np.linalg.norm(open_part.reshape(len(real), -1), axis=1)
            if node.name == "fc":
                assert level.drows is not None
                assert (rows <= level.drows).all()
                assert (np.array(level.drows) <= rows * 1.0011).all()
            else:
                assert level.drows is None
    levels = made.nodes[1].levels
    bits = np.diff(DEPTHS[stored["conv2.weight"].layout["id"]])
    falls = [upper.dn / lower.dn for upper, lower in itertools.pairwise(levels)]
    assert all(0.4 < fall / 2.0**more < 2.4 for fall, more in zip(falls, bits, strict=True))


@pytest.mark.parametrize("reference", ["conv@1", "mlp@1"])
def test_early_labels_are_those_of_all_planes(repository: Repository, reference: str) -> None:
    made, owner = record(repository, reference), model(repository, reference)
    stored = encodings(repository, reference)
    assert 2 <= len(made.schedule) <= 7
    assert made.helps["f64"]
    assert made.helps["strict"] == (reference == "mlp@1")  # no proof for batch norm
    store = MatrixStore.of(repository)
    x = digits()[0][1400:1500]
    exact = {name: View(store).array(owner.hash(name)) for name in owner.program.tensors}
    labels = Forward(owner.program, exact.__getitem__)({"x": x}).argmax(1)
    told = 0
    for level in made.schedule[:-1]:
        tensors = dict(exact)
        norms = {}
        for node in made.nodes:
            name = f"{node.name}.weight"
            depth = None if level[name] == stored[name].planes else level[name]
            norms[node.name] = made.norms(node.name, depth, [(1, 8, 8)])
            if depth is not None:
                tensors[name] = centre(repository, owner.hash(name), depth)
        balls = Balls(owner.program, tensors.__getitem__, norms, F64)  # type: ignore[arg-type]
        said, sure = certain(balls, balls.balls({"x": x}))
        assert (said[sure] == labels[sure]).all()
        told = max(told, int(sure.sum()))
    assert told > 50
    assert set(made.helps) == set(REFERENCES)


def test_weights_are_in_fixed_point(repository: Repository) -> None:
    stored = encodings(repository, "conv@1")
    kinds = {name: encoding.layout["id"] for name, encoding in stored.items()}
    fixed = {name for name, kind in kinds.items() if kind in ("fixed", "halved")}
    assert fixed == {"conv2.weight", "fc.weight"}  # conv1 has 432 bytes
    assert all(stored[name].delta is None for name in fixed)
    assert {stored[name].layout["rows"] for name in fixed} == {"first"}
    assert sound(repository)


def test_side_data_share_a_chunk(repository: Repository) -> None:
    """Every level reads all of them, and a chunk of its own would take more than they do."""
    owner, store = model(repository, "conv@1"), MatrixStore.of(repository)
    pieces = [store.chunks(owner.hash(name)) for name in ("conv2.weight", "fc.weight")]
    sides = {(each.pack, each.offset) for found in pieces for each in found if each.kind == "side"}
    planes = [each for found in pieces for each in found if each.kind == "plane"]
    assert len(sides) == 1
    assert len({(each.pack, each.offset) for each in planes}) == len(planes) >= 8


def test_bits_stay(repository: Repository) -> None:
    made, weights = model(repository, "conv@1"), trained("conv")[0]
    for name in made.program.tensors:
        assert made.hash(name) == matrix_hash(
            "float32", weights[name].shape, weights[name].tobytes()
        )
        assert bytes(MatrixStore.of(repository).matrix(made.hash(name))) == weights[name].tobytes()


def test_made_once(repository: Repository, bounded: Bound) -> None:
    before = record(repository, "conv@1")
    again = bounded(repository, "conv@1")
    assert [(row.made, row.changed, row.record) for row in again.versions] == [
        (False, 0, before.hash)
    ]
    assert again.written == 0


def test_without_references_the_latest_of_each_name(
    repository: Repository, bounded: Bound, commit_model: Commit
) -> None:
    commit_model(repository, "bare", {"w": np.ones((40, 40), "f4")}, root=True)
    outcome = bounded(repository)
    assert [(row.version, row.made) for row in outcome.versions] == [
        ("conv@2", True),
        ("mlp@1", False),
    ]
    assert outcome.skipped == [("bare@1", "it has no network")]
    assert outcome.versions[0].calibration == "noise"
    with pytest.raises(UsageError) as error:
        bounded(repository, "bare@1")
    assert error.value.why == "it has no network"


def test_a_network_that_cannot_be_run(
    repository: Repository, bounded: Bound, commit_model: Commit
) -> None:
    """It does not stand in the way of the others."""
    nodes = [{"name": "flat", "op": "RESHAPE", "attrs": {"kind": "flatten"}, "inputs": ["x"]}]
    nodes += [{"name": "fc", "op": "FULL", "attrs": {"out": 10}, "inputs": ["flat"]}]
    commit_model(repository, "open", {"w": np.ones((40, 40), "f4")}, nodes, root=True)
    outcome = bounded(repository)
    assert [row.version for row in outcome.versions] == ["conv@2", "mlp@1"]
    (skipped,) = outcome.skipped
    assert skipped[0] == "open@1"
    assert "weight" in skipped[1]
    with pytest.raises(UsageError):
        bounded(repository, "open@1")


def test_a_single_layer(repository: Repository, bounded: Bound, commit_model: Commit) -> None:
    nodes = [MLP[0], {**MLP[1], "attrs": {"out": 96}}]
    weights = {name: value for name, value in trained("mlp")[0].items() if "fc1" in name}
    commit_model(repository, "one", weights, nodes, root=True)
    (row,) = bounded(repository, "one@1").versions
    assert row.made
    assert record(repository, "one@1").suffix is None
    assert sound(repository)


def test_rows_that_do_not_fit(repository: Repository, bounded: Bound, tmp_path: Path) -> None:
    np.savez(tmp_path / "odd.npz", x=np.zeros((5, 3, 8, 8), "f4"))
    before = record(repository, "mlp@1")
    with pytest.raises(UsageError):
        bounded(repository, "mlp@1", calibration=str(tmp_path / "odd.npz"))
    assert record(repository, "mlp@1") == before


# Chains


def test_a_near_relative_is_a_difference(repository: Repository, bounded: Bound, rows: str) -> None:
    """XOR where exponents can be shared; the first planes are still just those of the whole."""
    bounded(repository, "conv@2", calibration=rows)
    weights, stored = trained("conv")[1], encodings(repository, "conv@2")
    deltas = {name: each.delta["id"] for name, each in stored.items() if each.delta is not None}
    assert deltas == {"conv2.weight": "xor", "fc.weight": "xor"}
    made, owner = record(repository, "conv@2"), model(repository, "conv@2")
    for node, name in ((made.nodes[1], "conv2.weight"), (made.nodes[2], "fc.weight")):
        whole = weights[name].astype(float)
        for level in node.levels:
            near = centre(repository, owner.hash(name), level.planes)
            open_part = whole - near
            if node.name == "conv2":
                open_part = folded(weights, whole) - folded(weights, near)
            assert sigma(open_part) <= level.dn <= sigma(open_part) * (1 + 1.1e-3)
    assert sound(repository)


def test_a_base_of_what_has_bounds_is_pinned(
    repository: Repository, bounded: Bound, rows: str, archived: Archive
) -> None:
    """Even when its own version and record are gone."""
    bounded(repository, "conv@2", calibration=rows)
    before, base = record(repository, "conv@2"), model(repository, "conv@1").hash("fc.weight")
    with repository.change("test") as change:
        matrix_rows.forget_bounds(change.db, [record(repository, "conv@1").hash])
    assert base not in matrix_rows.matrices_of_record(repository.database, before.hash)
    assert base in pinned(repository.database, MatrixStore.of(repository))
    remove(repository, ["conv@1"], "Ada", force=True)
    archived(repository)
    assert record(repository, "conv@2") == before
    assert sound(repository)


def chunks_of(repository: Repository, reference: str) -> dict[tuple[str, int], int]:
    """What reading a snapshot takes: stored bytes of each chunk."""
    store, held = MatrixStore.of(repository), model(repository, reference)
    pieces = [p for m in set(held.hashes.values()) for p in store.pieces_behind(m)]
    return {(piece.pack, piece.offset): piece.length for piece in pieces}


def test_small_matrices_get_chunks_of_their_own(
    tmp_path: Path, commit_model: Commit, archived: Archive, bounded: Bound, rows: str
) -> None:
    """After an archive those of many snapshots lie in one chunk, which would be read for each."""
    weights = trained("mlp")[0]
    with Repository.init(tmp_path)[0] as repository:
        rng = np.random.default_rng(3)
        for _ in range(24):
            moved = {n: w + rng.normal(0, 1e-4, w.shape).astype("f4") for n, w in weights.items()}
            commit_model(repository, "mlp", moved, MLP)
        archived(repository)
        before = sum(chunks_of(repository, "mlp@1").values())
        bounded(repository, "mlp@1", calibration=rows)
        size = sum(weight.nbytes for weight in weights.values())
        assert sum(chunks_of(repository, "mlp@1").values()) < 1.1 * size < 0.5 * before
        assert sound(repository)
        again = bounded(repository, "mlp@1")
        assert [one.made for one in again.versions] == [False]


# What happens later


def test_later_archives_leave_it_as_it_is(
    repository: Repository, archived: Archive, commit_model: Commit
) -> None:
    before = record(repository, "conv@1"), encodings(repository, "conv@1")
    commit_model(repository, "conv", trained("conv")[0] | {"fc.bias": np.zeros(10, "f4")})
    outcome = archived(repository)
    assert outcome.changed  # conv@2 is stored as differences now
    assert (record(repository, "conv@1"), encodings(repository, "conv@1")) == before
    assert sound(repository)


def move(repository: Repository, matrix: str) -> None:
    """Store a matrix plainly again, as no dlv would while a record holds."""
    store = MatrixStore.of(repository)
    raw = bytes(store.matrix(matrix))
    encoding = store.encoding(matrix)
    assert encoding is not None
    with repository.writing():
        packing = Packing(store)
        plain = replace(encoding, layout={"id": "ieee"}, delta=None, planes=4)
        for plane in range(4):
            packing.pool(plain, plane, np.frombuffer(raw, np.uint8)[3 - plane :: 4].tobytes())
        made = packing.finish(lambda _: None)
        reencode.switch(repository, store, made, "Ada", "moved")


def test_a_record_of_other_encodings_does_not_count(
    repository: Repository, bounded: Bound, rows: str
) -> None:
    before = record(repository, "conv@1")
    matrix = model(repository, "conv@1").hash("fc.weight")
    move(repository, matrix)
    stale = found(repository, "conv@1")
    assert isinstance(stale, NoRecord)
    assert "stored in another way" in stale.why
    assert sound(repository)  # it is not heeded, so it does no harm
    assert matrix not in pinned(repository.database, MatrixStore.of(repository))
    outcome = bounded(repository, "conv@1", calibration=rows)
    assert [row.changed for row in outcome.versions] == [1]
    assert isinstance(found(repository, "conv@1"), Record)
    assert matrix_rows.stored_bounds(repository.database).count(before.hash) <= 1
    assert len(matrix_rows.stored_bounds(repository.database)) == 2
    assert sound(repository)


def test_a_rebuild_finds_it(repository: Repository) -> None:
    before = record(repository, "conv@1"), record(repository, "mlp@1")
    repository.close()
    repository.database_file.unlink()
    rebuild.rebuild(repository)
    assert (record(repository, "conv@1"), record(repository, "mlp@1")) == before
    assert sound(repository)


def test_a_damaged_record_is_as_good_as_none(repository: Repository) -> None:
    made = record(repository, "conv@1")
    (piece, *_) = MatrixStore.of(repository).object_chunks("bounds", made.hash)
    path = durable.path_of(repository.packs, piece.pack, SUFFIX)
    path.chmod(0o600)
    with path.open("r+b") as pack:
        pack.seek(piece.offset + piece.length // 2)
        (byte,) = pack.read(1)
        pack.seek(-1, 1)
        pack.write(bytes([byte ^ 1]))
    left = found(repository, "conv@1")
    assert isinstance(left, NoRecord)
    assert "cannot be read" in left.why
    faults = {fault.kind: fault for fault in check.check(repository).faults}
    assert set(faults) == {"pack", "bounds"}
    assert (faults["bounds"].object, faults["bounds"].versions) == (made.hash, ("conv@1",))
    assert isinstance(found(repository, "mlp@1"), Record)
    repository.close()
    assert check.rebuild(repository).rebuilt == 3
    assert isinstance(found(repository, "mlp@1"), Record)


@pytest.mark.parametrize("place", ["verify", "switch"])
def test_interrupted(
    repository: Repository, bounded: Bound, rows: str, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Before the switch nothing has happened, and the next one does it all."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    before = encodings(repository, "conv@2")
    monkeypatch.setattr(reencode, place, killed)
    with pytest.raises(KeyboardInterrupt):
        bounded(repository, "conv@2", calibration=rows)
    monkeypatch.undo()
    assert isinstance(found(repository, "conv@2"), NoRecord)
    assert encodings(repository, "conv@2") == before
    assert isinstance(found(repository, "conv@1"), Record)
    report = check.check(repository)
    assert report.faults == []
    repository.close()
    rebuild.rebuild(repository)  # does not believe what was left half in
    assert encodings(repository, "conv@2") == before
    bounded(repository, "conv@2", calibration=rows)
    assert isinstance(found(repository, "conv@2"), Record)
    report = check.check(repository)
    assert (report.faults, report.dangling) == ([], [])


# fsck


def doctored(repository: Repository, change: Callable[[Record], Record]) -> check.Report:
    """The report about a record of conv@1 that was changed, and is found."""
    old = record(repository, "conv@1")
    made, told = change(old), matrix_rows.matrices_of_record(repository.database, old.hash)
    with repository.writing(), View(MatrixStore.of(repository)) as view:
        matrices = made.hashes(told, view.encoding).values()
        write_bounds(repository, view, made, list(matrices), [old.hash], "Ada", "doctored")
    assert record(repository, "conv@1") == made
    return check.check(repository)


def with_node(made: Record, at: int, **changed: Any) -> Record:
    nodes = list(made.nodes)
    nodes[at] = replace(nodes[at], **changed)
    return replace(made, nodes=tuple(nodes))


def with_level(made: Record, at: int, **changed: Any) -> Record:
    levels = list(made.nodes[at].levels)
    levels[1] = replace(levels[1], **changed)
    return with_node(made, at, levels=tuple(levels))


def lowered(value: Any) -> Any:
    return tuple(map(lowered, value)) if isinstance(value, tuple) else value * (1 - 1.2e-3)


@pytest.mark.parametrize(("at", "node"), [(0, "conv1"), (1, "conv2"), (2, "fc")])
@pytest.mark.parametrize("key", ["opn", "fro", "absmax", "rows", "dn", "dfro", "dopn", "drows"])
def test_a_norm_that_is_too_low_is_damage(
    repository: Repository, at: int, node: str, key: str
) -> None:
    old = record(repository, "conv@1").nodes[at]
    level = hasattr(old.levels[1], key)
    value = getattr(old.levels[1] if level else old, key)
    if value is None:
        pytest.skip("it is not stored of this node")
    change = with_level if level else with_node
    report = doctored(repository, lambda made: change(made, at, **{key: lowered(value)}))
    assert [(fault.kind, fault.versions) for fault in report.faults] == [("bounds", ("conv@1",))]
    assert f"layer `{node}`: {key}" in report.faults[0].why
    assert "must be at least" in report.faults[0].why


def test_a_norm_that_is_too_high_is_none(repository: Repository) -> None:
    report = doctored(repository, lambda made: with_level(made, 1, dn=9.0, dfro=9.0, dopn=None))
    assert report.faults == []


def test_a_table_of_the_suffix_metric_that_is_too_low_is_damage(repository: Repository) -> None:
    def looser(made: Record, node: str, factor: float) -> Record:
        assert made.suffix is not None
        suffix = suffix_from_json(made.suffix)
        levels = tuple(
            replace(level, dn=level.dn * factor, rest=level.rest * factor)
            for level in suffix.nodes[node].levels
        )
        nodes = {**suffix.nodes, node: replace(suffix.nodes[node], levels=levels)}
        return replace(made, suffix=replace(suffix, nodes=nodes).to_json())

    assert doctored(repository, lambda made: looser(made, "norm", 1.5)).faults == []
    report = doctored(repository, lambda made: looser(made, "norm", 0.6))
    assert [(fault.kind, fault.versions) for fault in report.faults] == [("bounds", ("conv@1",))]
    assert "`norm` after" in report.faults[0].why


def test_the_wrong_matrices_or_planes_are_damage(repository: Repository) -> None:
    def shallow(made: Record) -> Record:
        return replace(made, schedule=tuple({**each, "fc.bias": 3} for each in made.schedule))

    def fewer(made: Record) -> Record:
        levels = [{k: v for k, v in each.items() if k != "fc.bias"} for each in made.schedule]
        held = model(repository, "conv@1")
        hashes = {m.name: held.hash(m.name) for m in made.matrices if m.name != "fc.bias"}
        matrices, weights = named(hashes, MatrixStore.of(repository).encoding)
        return replace(made, schedule=tuple(levels), matrices=matrices, weights=weights)

    report = doctored(repository, shallow)
    assert ["does not end with all planes" in fault.why for fault in report.faults] == [True]
    report = doctored(repository, fewer)
    assert ["its tensors are not those" in fault.why for fault in report.faults] == [True]


def test_fsck_quick_computes_nothing(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlv.archiving.bounding.checking._fault", lambda *_: "computed")
    assert check.check(repository, quick=True).faults == []
    assert len(check.check(repository).faults) == 2
