"""dlv.adapters.torch.reader: which tensors are the model's, and what they are called."""

from __future__ import annotations

from typing import Any

import pytest

from dlv.adapters.torch.pickles import Mapping, Persistent
from dlv.adapters.torch.reader import assign, hyperparameters_of, leaves, scalar, step_of
from dlv.errors import UnsafeInput

T = object()


def build(value: Any) -> Any:
    """Descriptors of plain data in which T stands for a tensor."""
    if value is T:
        return Persistent(None)
    if isinstance(value, dict):
        mapping = Mapping()
        for key, item in value.items():
            mapping.set(key, build(item))
        return mapping
    if isinstance(value, list | tuple):
        return type(value)(map(build, value))
    return value


def named(value: Any) -> list[str]:
    root = build(value)
    return [f"{row.role} {row.name}" for row in assign(root, leaves(root, "p"))]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (T, ["weight tensor"]),
        ([T, {"a": T}], ["weight 0", "weight 1.a"]),
        (
            {"a.w": T, "bn.running_mean": T, "bn.num_batches_tracked": T},
            ["weight a.w", "buffer bn.running_mean", "buffer bn.num_batches_tracked"],
        ),
        ({"state_dict": {"module.w": T}}, ["weight module.w"]),
        ({"model": {"w": T}, "ema": {"w": T}}, ["weight w", "extra ema.w"]),
        ({"module": {"w": T}, "state_dict": {"v": T}}, ["extra module.w", "weight v"]),
        ({"net": {"w": T}, "lr": T}, ["weight w", "extra lr"]),
        ({"g": {"w": T}, "d": {"w": T}}, ["weight g.w", "weight d.w"]),
        (
            {"g": {"w": T}, "optim_g": {"state": {0: {"m": T}}}, "rng_state": [T]},
            ["weight g.w", "optimizer optim_g.state.0.m", "extra rng_state.0"],
        ),
        (
            {"model": {"w": T}, "optimizer_state_dict": {"state": {0: {"m": T}}}},
            ["weight w", "optimizer optimizer.state.0.m"],
        ),
        (
            {"state": {0: {"exp_avg": T}}, "param_groups": []},
            ["optimizer optimizer.state.0.exp_avg"],
        ),
        ({"optimizer": T, "model": T}, ["weight optimizer", "weight model"]),
        # Names meet: the model's stays, the other one becomes another.
        ({"ema": {"w": T}, "model": {"ema.w": T}}, ["extra ema.w#2", "weight ema.w"]),
        ({"a.b": T, "a": {"b": T}}, ["weight a.b", "weight a.b#2"]),
        (
            {"optimizer": {"x": T}, "optimizer_state_dict": {"x": T}, "model": {"w": T}},
            ["optimizer optimizer.x", "optimizer optimizer_state_dict.x", "weight w"],
        ),
        (
            {"1": T, 1: T, None: T, False: T},
            ["weight 1", "weight 1#2", "weight None", "weight False"],
        ),
        ({(1, 2): T}, ["weight key1"]),
        ({"": T}, ["weight tensor"]),
        ({}, []),
        (5, []),
    ],
)
def test_names_and_roles(value: Any, expected: list[str]) -> None:
    assert named(value) == expected


def test_shared_containers_are_walked_again_and_cycles_are_not() -> None:
    inner = build({"w": T})
    root = build({})
    root.set("a", inner)
    root.set("b", inner)
    inner.set("up", root)
    assert [leaf.path for leaf in leaves(root, "p")] == [("a", "w"), ("b", "w")]


def test_a_name_that_comes_up_very_often() -> None:
    """Dots in keys: one name in 2^12 ways, each with its own number."""
    root: Any = T
    for _ in range(12):
        root = {"a": {"b": root}, "a.b": root}
    names = [name.split(" ")[1] for name in named(root)]
    assert len(set(names)) == len(names) == 4096
    assert names[4095].startswith("a.b.a.b")


def test_depth_and_names_are_bounded() -> None:
    deep: Any = T
    for _ in range(60):
        deep = [deep]
    assert len(leaves(build(deep), "p")) == 1
    for _ in range(10):
        deep = [deep]
    with pytest.raises(UnsafeInput, match="deep"):
        leaves(build(deep), "p")
    with pytest.raises(UnsafeInput, match="letters"):
        leaves(build({"x" * 5000: T}), "p")
    with pytest.raises(UnsafeInput, match="letters"):
        leaves(build({"x" * 3000: {"y" * 3000: T}}), "p")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"epoch": 3, "global_step": 70}, 70),
        ({"epoch": 3}, 3),
        ({"iteration": 5.0, "epoch": 1}, 5),
        ({"step": True}, None),
        ({"step": -1}, None),
        ({"step": 1 << 63}, None),
        ({"step": "7"}, None),
        ({"step": 1.5, "epoch": 2}, 2),
        ([3], None),
    ],
)
def test_step(value: Any, expected: int | None) -> None:
    assert step_of(build(value)) == expected


def test_hyperparameters() -> None:
    value = {
        "args": {
            "lr": 0.1,
            "deep": {"a": [1, (2, "x")], "empty": [], "betas": (0.9, None, float("inf"))},
            "big": [0] * 500,
            "none": None,
        },
        "config": {"lr": 0.2, "inf": float("inf"), 3: "three", "huge": 1 << 70, "w": T},
        "other": {"x": 1},
        "cfg": 3,
    }
    assert hyperparameters_of(build(value)) == {
        "lr": 0.1,
        "deep.a.0": 1,
        "deep.a.1": '[2,"x"]',
        "deep.empty": "[]",
        "deep.betas": '[0.9,null,"Infinity"]',
        "none": None,
        "inf": "Infinity",
        "3": "three",
    }


def test_hyperparameters_are_bounded() -> None:
    value = {
        "args": {str(i): i for i in range(9_999)},
        "config": {f"c{i}": i for i in range(9_999)},
    }
    assert len(hyperparameters_of(build(value))) == 10_000


def test_scalars() -> None:
    assert scalar("a\ud800") == "a\\ud800"
    assert scalar(b"raw") is None
    assert scalar("x" * 5000) is None
    assert scalar(float("nan")) == "NaN"
    assert scalar([]) is None
