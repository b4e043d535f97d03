from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.storage import lenet, models
from benchmarks.storage.corpora import Corpus
from benchmarks.storage.models import Model


def recipe(seed: int, end: Callable[[str], Model]) -> dict[str, Callable[[], Iterator[Model]]]:
    def first() -> Iterator[Model]:
        for step in range(3):
            yield {"w": models.matrix(np.full(4, seed + step, "f4"))}

    def second() -> Iterator[Model]:
        yield {"w": models.matrix(end("first")["w"].array() * 2)}

    def broken() -> Iterator[Model]:
        yield end("first")
        raise KeyboardInterrupt

    return {"first": first, "second": second, "broken": broken}


def test_a_line_is_trained_once(tmp_path: Path) -> None:
    said: list[str] = []
    corpus = Corpus("toy", 5, recipe, tmp_path, said.append)
    assert corpus.end("second")["w"].array().tolist() == [14] * 4
    assert [path.name for path in corpus.files("first")] == [
        f"{number:02}.safetensors" for number in (1, 2, 3)
    ]
    assert len(said) == 2
    again = Corpus("toy", 5, recipe, tmp_path, said.append)
    assert again.end("second")["w"].array().tolist() == [14] * 4
    assert len(said) == 2
    other = Corpus("toy", 6, recipe, tmp_path, said.append)
    assert other.end("first")["w"].array().tolist() == [8] * 4


def test_training_that_was_interrupted_leaves_no_line(tmp_path: Path) -> None:
    corpus = Corpus("toy", 5, recipe, tmp_path, lambda _: None)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            corpus.files("broken")
    assert not (corpus.folder / "broken").exists()


def test_lenet_is_caffes_and_its_training_repeats() -> None:
    weights = lenet.fresh(3)
    assert sum(tensor.numel() for tensor in weights.values()) == 431_080
    x, y, tx, ty = lenet.images()
    assert (tuple(x.shape), tuple(tx.shape)) == ((1300, 1, 28, 28), (497, 1, 28, 28))
    few, labels = x[:64], y[:64]
    runs = [list(lenet.train(lenet.fresh(3), few, labels, 3, lenet.ADAM, 2)) for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]
    other = next(lenet.train(lenet.fresh(4), few, labels, 4, lenet.ADAM, 1))
    assert other != runs[0][0]
    last = next(
        lenet.train(lenet.fresh(3), few, labels, 3, lenet.SGD, 1, lambda n: n.startswith("ip2"))
    )
    start = {name: models.matrix(tensor.numpy()) for name, tensor in weights.items()}
    changed = {name for name, held in last.items() if held != start[name]}
    assert changed == {"ip2.weight", "ip2.bias"}
    assert 0 <= lenet.accuracy(last, tx, ty) <= 1


def test_casts_round_as_torch_does() -> None:
    values = np.random.default_rng(0).normal(0, 1e-3, 5000).astype("f4")
    words = values.view("u4")
    words[:2000] = words[:2000] & 0xFFFF0000 | 0x8000  # halfway between two neighbours
    words[2000:3000] &= 0xFFFFF000
    held = {"w": models.matrix(values), "n": models.matrix(np.arange(3))}
    given = torch.from_numpy(values)
    half = models.cast(held, "bfloat16")
    assert half["w"].raw == given.to(torch.bfloat16).view(torch.int16).numpy().tobytes()
    assert np.array_equal(half["w"].array(), given.to(torch.bfloat16).float().numpy())
    assert models.cast(held, "float16")["w"].raw == given.to(torch.float16).numpy().tobytes()
    assert half["n"] == held["n"]
