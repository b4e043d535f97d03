"""`dlv checkout` as seen from outside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlv.metadata import versions
from dlv.repository.handle import Repository

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]


def how(mode: str) -> dict[str, bool]:
    return {"tty": mode == "tty", "json": mode == "json"}


@pytest.mark.parametrize("mode", MODES)
def test_a_version(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    result = dlv("checkout", "lenet@1", **how(mode))
    assert result.code == 0
    snapshot(result)
    assert (filled / "ckpt-100.safetensors").is_file()
    assert dlv("status", "--exit-code").code == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_snapshot_as_npz(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    result = dlv("checkout", "lenet@1/100", "--to", "out", "--file-format", "npz", **how(mode))
    assert result.code == 0
    snapshot(result)


@pytest.mark.parametrize("mode", MODES)
def test_approximate(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    result = dlv("checkout", "lenet@1", "--planes", "2", "--to", "out", **how(mode))
    assert result.code == 0
    snapshot(result)


def test_approximate_and_exact_all_the_same(dlv: Dlv, snapshot: Dlv, filled: Path) -> None:
    snapshot(dlv("checkout", "lenet@1/100", "--planes", "4", "--to", "out", tty=True))


@pytest.mark.parametrize("mode", MODES)
def test_nothing_to_do(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    snapshot(dlv("restore", "HEAD", **how(mode)))


def test_quiet(dlv: Dlv, filled: Path) -> None:
    result = dlv("checkout", "lenet@1", "--no-weights", "--to", "out", "-q")
    assert result.stdout == "config.json\nlog.csv\nnetwork.json\ntrain.py\n"
    assert result.stderr == ""


def test_there_and_back(dlv: Dlv, filled: Path) -> None:
    before = {p.name: p.read_bytes() for p in filled.iterdir() if p.is_file()}
    dlv("checkout", "lenet@1")
    (filled / "ckpt-100.safetensors").unlink()
    dlv("checkout", "lenet-wide")
    assert {p.name: p.read_bytes() for p in filled.iterdir() if p.is_file()} == before


@pytest.mark.parametrize("mode", ["pipe", "json"])
@pytest.mark.parametrize(
    ("name", "code", "args"),
    [
        ("no_reference", 2, []),
        ("unknown_format", 2, ["HEAD", "--file-format", "onnx"]),
        ("approximate_here", 2, ["HEAD", "--planes", "2"]),
        ("approximate_without_weights", 2, ["HEAD", "--planes", "2", "--to", "o", "--no-weights"]),
        ("no_planes", 2, ["HEAD", "--planes", "0", "--to", "o"]),
        ("into_the_repository", 2, ["HEAD", "--to", ".dlv/packs"]),
        ("unknown_version", 4, ["lent"]),
        ("unknown_step", 4, ["lenet@1/150"]),
        ("unknown_file", 4, ["HEAD", "trian.py"]),
        ("changed", 5, ["lenet@1"]),
        ("folder_in_the_way", 5, ["HEAD", "--to", "out", "-f"]),
        ("damage", 6, ["lenet@1", "--to", "else"]),
        ("not_a_place", 5, ["HEAD", "--to", "train.py"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors(
    dlv: Dlv, snapshot: Dlv, filled: Path, mode: str, name: str, code: int, args: list[str]
) -> None:
    (filled / "train.py").write_text("mine")
    (filled / "ckpt-100.safetensors").write_bytes(b"mine")
    (filled / "out" / "train.py").mkdir(parents=True)
    if name == "damage":
        for pack in (filled / ".dlv" / "packs").rglob("*.pack"):
            data = bytearray(pack.read_bytes())
            data[8:40] = bytes(32)
            pack.write_bytes(data)
    result = dlv("checkout", *args, **how(mode))
    assert result.code == code
    snapshot(result, replace={r"pack <id:..>": "pack <id>"})
    assert (filled / "train.py").read_text() == "mine"
    assert list(filled.rglob("*.dlv-part")) == []


def test_a_dtype_that_npz_lacks(dlv: Dlv, snapshot: Dlv, filled: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"half": torch.ones(2, dtype=torch.bfloat16)}, filled / "w.pt")
    dlv("add", "w.pt")
    dlv("commit", "-m", "Half", "--name", "half")
    result = dlv("checkout", "half", "--file-format", "npz", "--to", "out")
    assert result.code == 2
    snapshot(result)


def test_no_permission(dlv: Dlv, filled: Path) -> None:
    assert dlv("checkout", "HEAD", "--to", "/proc/no-such-place").code == 8


def test_outside_a_repository(dlv: Dlv) -> None:
    assert dlv("checkout", "HEAD").code == 3


def test_a_removed_version_says_so(dlv: Dlv, snapshot: Dlv, filled: Path) -> None:
    with Repository.find(filled) as repository, repository.change("rm") as change:
        found = versions.by_number(repository.database, "lenet", 1)
        assert found is not None
        change.record("removal", found.id, {"steps": None})
    snapshot(dlv("checkout", "lenet@1", "train.py", "--to", "out"))
