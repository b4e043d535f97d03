from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.storage import models, ours, stores
from benchmarks.storage.models import Model


def model(seed: int, base: Model | None = None) -> Model:
    rng = np.random.default_rng(seed)
    made = {}
    for name, shape in {"bias": (30,), "weight": (150, 200), "same": (100, 100)}.items():
        values = rng.normal(0, 0.05, shape).astype("f4")
        if base is not None:
            values = base[name].array() + values * np.float32(1e-4 if name != "same" else 0)
        made[name] = models.matrix(values)
    return made


@pytest.mark.parametrize("tier", ["fast", "normal", "high"])
def test_a_delta_takes_less_than_the_model_alone(tier: ours.Tier) -> None:
    base = model(1)
    target = model(2, base)
    alone = ours.store(target, None, tier)
    close = ours.store(target, base, tier, check=tier == "normal")
    assert close.memory.bytes < 0.8 * alone.memory.bytes
    assert close.above == 0
    assert close.memory.chunk_bytes < close.memory.bytes
    # Equal matrices take nothing; the base is not counted.
    assert sum(close.kinds.values()) == 4 * (30 + 150 * 200)
    assert close.encode > 0
    assert alone.kinds.keys() >= {"pooled"}


def test_what_is_read_back_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_wrongly(*_: object) -> bytes:
        return b"\x01"

    monkeypatch.setattr(ours, "read_matrix", read_wrongly)
    with pytest.raises(SystemExit, match="wrong bits for bias"):
        ours.store(model(1), None, "fast")


@pytest.mark.slow
def test_whole_stores_give_the_files_back(tmp_path: Path) -> None:
    files = []
    base = model(1)
    for number in range(3):
        files.append(tmp_path / f"{number}.safetensors")
        models.save(files[-1], base)
        base = model(number + 2, base)
    sizes = stores.measure(files, dvc=None, git=True, high=False)
    whole = sum(file.stat().st_size for file in files)
    assert sizes["files"].bytes == whole
    assert sizes["dlv archive"].bytes < sizes["dlv commit"].bytes < sizes["git gc"].bytes * 1.05
    assert sizes["git gc"].bytes < whole
