"""docs/format.md says enough: a reader that knows nothing else reads all that dlv writes."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlv.pas.chunks import MATRIX_KINDS, OBJECT_KINDS
from dlv.pas.coders.codecs import CODECS, context_codecs
from dlv.pas.deltas.difference import DELTAS
from dlv.pas.deltas.predictors import PREDICTORS
from dlv.pas.layouts.registry import LAYOUTS
from dlv.pas.packs import Pack
from dlv.repository.handle import Repository
from dlv.weights.store import MatrixStore
from tests.format.coders import Unreadable, digest
from tests.format.reader import Packs

HERE = Path(__file__).resolve().parent
Golden = dict[Path, dict[str, Any]]
Weights = dict[str, Any]


def test_it_knows_nothing_of_dlv() -> None:
    allowed = {"numpy", "zstandard", "blake3", "pcodec", "tests"} | sys.stdlib_module_names
    for name in ("reader", "encodings", "coders"):
        tree = ast.parse((HERE / f"{name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert {one.name.split(".")[0] for one in node.names} <= allowed
            elif isinstance(node, ast.ImportFrom):
                module = str(node.module)
                assert module.split(".")[0] in allowed
                assert not module.startswith("tests.") or module.startswith("tests.format.")


def test_it_reads_all_golden_packs(golden: Golden) -> None:
    for path, rows in golden.items():
        packs = Packs([path])
        assert sorted(packs.encodings) == rows["matrices"]
        for matrix in rows["matrices"]:
            packs.matrix(matrix)  # raises unless the bytes have this name
        for table in rows["tables"]:
            assert digest(packs.object("table", table)) == table


def test_it_reads_the_first_golden_pack() -> None:
    packs = Packs([HERE.parent / "golden" / "pack" / "1" / "small.pack"])
    assert [len(packs.matrix(matrix)) for matrix in packs.encodings] == [60, 4, 400, 0]
    assert packs.objects.keys() == {("network", next(iter(packs.objects))[1])}
    for kind, name in packs.objects:
        packs.object(kind, name)


def test_it_sees_a_changed_bit(golden: Golden, tmp_path: Path) -> None:
    path = next(path for path in golden if path.name == "predictors.pack")
    data = bytearray(path.read_bytes())
    data[1000] ^= 4
    (tmp_path / "x.pack").write_bytes(data)
    with pytest.raises(Unreadable, match="corrupt"):
        Packs([tmp_path / "x.pack"])


def pulled(weights: Weights, seed: int) -> Weights:
    """A low rank added to the matrices, as merged adapters do."""
    rng = np.random.default_rng(seed)
    moved = {}
    for name, w in weights.items():
        if w.ndim == 2 and w.dtype.kind == "f" and name != "f":
            left = rng.normal(0, 1, (len(w), 4))
            right = rng.normal(0, 0.002, (4, w.shape[1]))
            moved[name] = (w.astype("f8") + left @ right).astype(w.dtype)
        else:
            moved[name] = w
    return moved


def decayed(weights: Weights, seed: int) -> Weights:
    """Most rows only shrink, step by step in their own precision; the others are trained."""
    rng = np.random.default_rng(seed)
    moved = {}
    for name, w in weights.items():
        if w.ndim != 2 or w.dtype.kind != "f" or name == "f":
            moved[name] = w
            continue
        trained = rng.random(len(w)) < 0.3
        new = w.copy()
        for _ in range(30):
            new = (new * w.dtype.type(1 - 5e-6)).astype(w.dtype)
        new[trained] += (rng.normal(0, 1e-3, w.shape)[trained]).astype(w.dtype)
        moved[name] = new
    return moved


def noisy(weights: Weights, seed: int, size: float = 1e-4) -> Weights:
    rng = np.random.default_rng(seed)
    moved = {}
    for name, w in weights.items():
        if name == "f":
            moved[name] = np.roll(w, 1, 0)
        elif w.dtype.kind == "f":
            moved[name] = (w + rng.normal(0, size, w.shape)).astype(w.dtype)
        else:
            moved[name] = (w + (rng.random(w.shape) < 0.01)).astype(w.dtype)
    return moved


def first(seed: int) -> Weights:
    """Matrices just large enough for chunks of their own, and small ones."""
    rng = np.random.default_rng(seed)
    return {
        "a": rng.normal(0, 0.05, (150, 120)).astype("f4"),
        "b": rng.normal(0, 0.05, (104, 80)).astype("f8"),
        "c": rng.normal(0, 0.05, (260, 130)).astype("f2"),
        "d": rng.integers(-9, 9, (260, 256)).astype("i1"),
        "e": rng.integers(0, 1 << 40, (9, 10)).astype("i8"),
        "f": rng.choice(np.array([0.5, -0.25, 0], "f4"), (150, 120)),
        "g": rng.normal(0, 1, 300).astype("f4"),
        "h": np.array([0.0, -0.0, np.inf, np.nan], "f4"),
        "i": np.zeros((0, 4), "f4"),
    }


def _archive(folder: Path, *options: str) -> None:
    """`dlv archive` as it is typed."""
    done = subprocess.run(
        [sys.executable, "-m", "dlv", "archive", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, commit_model: Callable[..., str]) -> Path:
    """A repository whose matrices `archive` has stored as it likes, and a commit after it."""
    folder = tmp_path_factory.mktemp("written")
    with Repository.init(folder)[0] as repository:
        weights = first(1)
        commit_model(repository, "net", weights)
        for seed, change in enumerate((pulled, decayed), 2):
            weights = change(weights, seed)
            commit_model(repository, "net", weights)
        shutil.copytree(folder / ".dlv" / "packs", folder / "before")
        _archive(folder, "--alpha", "50")
        reshaped = {name: w[:-3] if w.ndim == 2 and len(w) else w for name, w in weights.items()}
        commit_model(repository, "net", noisy(reshaped, 9))
    return folder


def test_it_reads_what_commit_and_archive_write(written: Path) -> None:
    packs = Packs.of(written)
    with Repository.find(written) as repository:
        store = MatrixStore.of(repository)
        rows = repository.database.rows("SELECT hash FROM matrix")
        assert {row[0] for row in rows} == set(packs.encodings)
        for (name,) in rows:
            assert packs.matrix(name) == bytes(store.matrix(name))
        store.close()
    for kind, name in packs.objects:
        packs.object(kind, name)


def test_packs_from_before_do_not_disturb_it(written: Path, tmp_path: Path) -> None:
    """As while an archive is at work, or after one that was killed."""
    held = Packs.of(written)
    shutil.copytree(written / ".dlv" / "packs", tmp_path / ".dlv" / "packs")
    shutil.copytree(written / ".dlv" / "facts", tmp_path / ".dlv" / "facts")
    shutil.copytree(written / "before", tmp_path / ".dlv" / "packs", dirs_exist_ok=True)
    packs = Packs.of(tmp_path)
    several = [name for name, found in packs.encodings.items() if len(found) > 1]
    assert len(several) > 5
    for name in packs.encodings:
        assert packs.matrix(name) == held.matrix(name)


def test_the_text_names_everything() -> None:
    text = (HERE.parents[1] / "docs" / "format.md").read_text(encoding="utf-8")
    configs = {
        **LAYOUTS,
        **CODECS,
        **context_codecs(),
        "context-above": None,
        **DELTAS,
        **PREDICTORS,
    }
    for name in configs:
        assert f'{{"id": "{name}"' in text, name
    for kind in (*MATRIX_KINDS, *OBJECT_KINDS):
        assert f"`{kind}`" in text, kind
    assert "checked by [a reader of its own](../tests/format/reader.py)" in text


def test_what_was_written_is_worth_reading(written: Path) -> None:
    """Otherwise the test before says little."""
    found: Counter[str] = Counter()
    for path in written.glob(".dlv/packs/*/*.pack"):
        with Pack(path) as pack:
            for row in pack.encodings:
                found[str(row.layout["id"])] += 1
                found["delta" if row.delta else "none"] += 1
                for one in (row.delta or {}).get("predictor", []):
                    found[one["id"]] += 1
            for chunk in pack.footer.chunks:
                found[str(chunk.codec["id"])] += 1
    for feature in ("ieee", "table", "delta", "none", "lowrank", "drift", "context-pco"):
        assert found[feature], (feature, found)
