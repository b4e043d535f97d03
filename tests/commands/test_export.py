"""`dlv export` as seen from outside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlv.adapters import safetensors
from dlv.adapters.checkpoint import Tensor

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]


def how(mode: str) -> dict[str, bool]:
    return {"tty": mode == "tty", "json": mode == "json"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("same", ["lenet@1", "w.safetensors"]),
        ("npz", ["lenet@1/100", "w.npz"]),
        ("layer", ["lenet", "w.safetensors", "--layer", "conv*"]),
        ("network", ["lenet", "net.json"]),
        ("torch", ["lenet", "weights", "--file-format", "torch", "--tensors", "fc.*"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_files(
    dlv: Dlv, snapshot: Dlv, filled: Path, mode: str, name: str, args: list[str]
) -> None:
    result = dlv("export", *args, **how(mode))
    assert result.code == 0
    assert (filled / args[1]).is_file()
    snapshot(result)


def test_the_same_file(dlv: Dlv, filled: Path) -> None:
    dlv("export", "HEAD", "again.safetensors")
    added = (filled / "ckpt-200.safetensors").read_bytes()
    assert (filled / "again.safetensors").read_bytes() == added


def test_an_optimizer_is_left_out(dlv: Dlv, snapshot: Dlv, filled: Path) -> None:
    torch = pytest.importorskip("torch")
    state = {"model": {"w": torch.ones(2)}, "optimizer": {"state": {0: {"m": torch.ones(2)}}}}
    torch.save({**state, "step": 3}, filled / "ckpt.pt")
    dlv("add", "ckpt.pt")
    dlv("commit", "-m", "torch", "--name", "opt")
    snapshot(dlv("export", "opt", "w.npz"))
    assert dlv("export", "opt", "w.pt", "--all", json=True).document["written"][0]["original"]


def test_quiet(dlv: Dlv, filled: Path) -> None:
    assert dlv("export", "lenet", "w.npz", "-q").stdout == "w.npz\n"


@pytest.mark.parametrize("mode", ["pipe", "json"])
@pytest.mark.parametrize(
    ("name", "code", "args"),
    [
        ("no_out", 2, ["lenet"]),
        ("unknown_ending", 2, ["lenet", "w.mat"]),
        ("unknown_format", 2, ["lenet", "w", "--file-format", "onx"]),
        ("layers_of_json", 2, ["lenet", "n.json", "--layer", "fc"]),
        ("dtype", 2, ["half", "w.npz"]),
        ("unknown", 4, ["lent", "w.npz"]),
        ("unknown_layer", 4, ["lenet", "w.npz", "--layer", "cnov1"]),
        ("unknown_matrix", 4, ["lenet", "w.npz", "--tensor", "fc.wieght"]),
        ("no_network", 4, ["half", "n.json"]),
        ("no_folder", 4, ["lenet", "no/w.npz"]),
        ("out_exists", 5, ["lenet", "train.py", "--file-format", "npz"]),
        ("out_is_a_folder", 5, ["lenet", "folder", "--file-format", "npz", "-f"]),
        ("damage", 6, ["lenet@1", "w.npz"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors(
    dlv: Dlv, snapshot: Dlv, filled: Path, mode: str, name: str, code: int, args: list[str]
) -> None:
    (filled / "folder").mkdir()
    tensor = Tensor("half", "bfloat16", (2,), 4, lambda: b"\0" * 4)
    with (filled / "half.safetensors").open("wb") as out:
        safetensors.save(out, [tensor], {})
    if args[:1] == ["half"]:
        dlv("import", "checkpoints", "half.safetensors", "--name", "half")
    if name == "damage":
        for pack in (filled / ".dlv" / "packs").rglob("*.pack"):
            data = bytearray(pack.read_bytes())
            data[8:40] = bytes(32)
            pack.write_bytes(data)
    result = dlv("export", *args, **how(mode))
    assert result.code == code
    snapshot(result)
    assert not (filled / "w.npz").exists()


def test_nowhere_to_write(dlv: Dlv, filled: Path) -> None:
    assert dlv("export", "lenet", "/proc/w.npz").code == 8


def test_outside_a_repository(dlv: Dlv) -> None:
    assert dlv("export", "lenet", "w.npz").code == 3
