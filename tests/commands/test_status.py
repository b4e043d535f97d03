"""`dlv status` as seen from outside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dlv = Callable[..., Any]
MODES = ["pipe", "tty", "json"]


def how(mode: str) -> dict[str, bool]:
    return {"tty": mode == "tty", "json": mode == "json"}


@pytest.mark.parametrize("mode", MODES)
def test_clean(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    snapshot(dlv("status", **how(mode)))


@pytest.mark.parametrize("mode", MODES)
def test_everything(dlv: Dlv, snapshot: Dlv, filled: Path, mode: str) -> None:
    _change(dlv, filled)
    snapshot(dlv("status", **how(mode)))


def _change(dlv: Dlv, filled: Path) -> None:
    dlv("copy", "HEAD", "lenet-deep")
    weights = (filled / "ckpt-200.safetensors").read_bytes()
    (filled / "ckpt-300.safetensors").write_bytes(weights)
    (filled / "a name.npz").write_bytes(b"PK\x03\x04")
    dlv("add", "ckpt-300.safetensors", "--as", "checkpoint")
    (filled / "log.csv").write_text("step,loss\n1,0.1\n")
    dlv("add", "log.csv")
    (filled / "log.csv").write_text("step,loss\n1,0.1\n2,0.1\n")
    dlv("add", "--remove", "network.json")
    (filled / "train.py").write_text("import torch\n\n# trains another\n")
    (filled / "config.json").unlink()


def test_from_a_folder_below(dlv: Dlv, snapshot: Dlv, filled: Path) -> None:
    (filled / "runs").mkdir()
    _change(dlv, filled)
    snapshot(dlv("-C", "runs", "status"))


def test_before_the_first_commit(dlv: Dlv, snapshot: Dlv, workspace: Path) -> None:
    dlv("init")
    snapshot(dlv("status"), "empty")
    (workspace / "w.npy").write_bytes(b"\x93NUMPY")
    snapshot(dlv("status"), "untracked")


def test_exit_code(dlv: Dlv, filled: Path) -> None:
    assert dlv("status", "--exit-code").code == 0
    (filled / "train.py").unlink()
    assert dlv("status").code == 0
    assert dlv("status", "--exit-code", json=True).code == 1


def test_quiet(dlv: Dlv, filled: Path) -> None:
    (filled / "train.py").unlink()
    assert dlv("status", "-q").stdout == "train.py\n"


def test_outside_a_repository(dlv: Dlv, snapshot: Dlv) -> None:
    result = dlv("status")
    assert result.code == 3
    snapshot(result)


def test_a_lost_catalogue(dlv: Dlv, snapshot: Dlv, filled: Path) -> None:
    (filled / ".dlv" / "dlv.db").unlink()
    result = dlv("status")
    assert result.code == 6
    snapshot(result)


def test_usage(dlv: Dlv) -> None:
    assert dlv("status", "train.py").code == 2


def test_on_a_real_terminal(dlv_pty: Dlv, filled: Path) -> None:
    (filled / "train.py").unlink()
    result = dlv_pty("status")
    assert result.code == 0
    assert "dlv checkout HEAD PATH" in result.stdout


def test_what_cannot_be_read_does_not_end_it(dlv: Dlv, filled: Path) -> None:
    """A link to itself is unreadable for root, too."""
    (filled / "train.py").unlink()
    (filled / "train.py").symlink_to("train.py")
    (filled / "new-500.safetensors").write_bytes((filled / "ckpt-200.safetensors").read_bytes())
    result = dlv("status", "--short")
    assert result.code == 0, result.stderr
    assert "train.py" in result.stdout
    assert "new-500.safetensors" in result.stdout


def test_another_repository_below_is_left_alone(dlv: Dlv, filled: Path) -> None:
    inner = filled / "inner"
    dlv("init", "inner")
    (inner / "w.safetensors").write_bytes((filled / "ckpt-200.safetensors").read_bytes())
    assert "inner" not in dlv("status").stdout
    assert "inner" not in dlv("add", ".", "--dry-run").stdout
    assert "w.safetensors" in dlv("-C", "inner", "status").stdout


def test_short_has_a_line_for_each_file(dlv: Dlv, snapshot: Dlv, filled: Path) -> None:
    _change(dlv, filled)
    snapshot(dlv("status", "--short", tty=True))
