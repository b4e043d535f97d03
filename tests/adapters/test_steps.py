"""dlv.adapters.detect on names as trainers write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.adapters.detect import shard_of, step_of

STEPS = {
    "ckpt-500.pt": 500,
    "step_1000": 1000,
    "step-1000.pt": 1000,
    "step1000.safetensors": 1000,
    "steps=12.pth": 12,
    "epoch=3-step=1200.ckpt": 1200,
    "epoch=3-step=1200-v1.ckpt": 1200,
    "step=1200-epoch=3.ckpt": 1200,
    "epoch=09-val_loss=0.12.ckpt": 9,
    "best_epoch_5.pt": 5,
    "checkpoint-2000/model.safetensors": 2000,
    "runs/a/checkpoint-2000/model-00001-of-00003.safetensors": 2000,
    "runs/checkpoint-2000/step_5.pt": 5,
    "global_step1000/mp_rank_00_model_states.pt": 1000,
    "iter_0005000": 5000,
    "iter_0005000/model.pt": 5000,
    "ITER-7.PT": 7,
    "model_00010.npz": 10,
    "weights.12.h5": 12,
    "resnet18-step-100.pt": 100,
    "my_model_12.pt": 12,
    "00010.pt": 10,
    "step_10k.pt": 10_000,
    "iter_2M.pt": 2_000_000,
    "model_20000000.pt": 20_000_000,
    "step_0.pt": 0,
    "a\\checkpoint-3\\x.bin": 3,
    "ckpt-500.tar.gz": 500,
}
NONE = [
    "resnet18.safetensors",
    "resnet18-5.safetensors",
    "llama-7b",
    "llama-7b.safetensors",
    "model-7b.safetensors",
    "model-70B.gguf",
    "model_v2.pt",
    "v2",
    "fp16",
    "model-fp16.safetensors",
    "2024-01-31",
    "model-2024-01-31.pt",
    "model_20240131.pt",
    "20240131.pt",
    "20240131123000.pt",
    "model-00001-of-00003.safetensors",
    "pytorch_model-00001-of-00002.bin",
    "timestep3.pt",
    "footstep-3.pt",
    "stepfun-3.pt",
    "model.pt",
    "model.safetensors.index.json",
    "bert-base-512.pt",
    "1000/model.pt",
    "model_1e5.pt",
    "step_" + "9" * 19,
    "",
    "/",
]


@pytest.mark.parametrize(("name", "step"), STEPS.items())
def test_steps(name: str, step: int) -> None:
    assert step_of(name) == step


@pytest.mark.parametrize("name", NONE)
def test_no_steps(name: str) -> None:
    assert step_of(name) is None


@pytest.mark.parametrize(
    ("name", "shard"),
    [
        ("model-00001-of-00003.safetensors", ("model.safetensors", 1, 3)),
        ("a/b/model-00003-of-00003.safetensors", ("a/b/model.safetensors", 3, 3)),
        ("pytorch_model_1_of_2.bin", ("pytorch_model.bin", 1, 2)),
        ("data-00000-of-00001", ("data", 0, 1)),
        ("w.fp16-00001-of-00002.safetensors", ("w.fp16.safetensors", 1, 2)),
        ("model-00004-of-00003.safetensors", None),
        ("model-0-of-0.safetensors", None),
        ("model-00001-of-00003/x.pt", None),
        ("1-of-3", None),
        ("best-of-3.pt", None),
        ("model.safetensors", None),
    ],
)
def test_shards(name: str, shard: tuple[str, int, int] | None) -> None:
    assert shard_of(name) == shard


@given(st.integers(0, 10**12), st.sampled_from(["step_{}.pt", "a/iter-{}/x.npz", "epoch={}.ckpt"]))
def test_any_number(step: int, form: str) -> None:
    assert step_of(form.format(step)) == step


@given(st.text(max_size=80))
def test_any_name(name: str) -> None:
    step = step_of(name)
    assert step is None or step >= 0
