"""Makes digits.npz and a repository with LeNet in the folder that is named, else here."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import dlv

HERE = Path(__file__).resolve().parent
LENET = HERE.parent / "digits" / "base"
TRAINED, VALIDATED = 1077, 360  # the last 360 are kept for the end


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32").reshape(-1, 1, 8, 8)
    order = np.random.default_rng(0).permutation(len(x))
    train, val, test = np.split(order, [TRAINED, TRAINED + VALIDATED])
    np.savez(folder / "digits.npz", x=x[train], y=y[train], x_val=x[val], y_val=y[val])
    np.savez(folder / "test.npz", x=x[test], y=y[test])
    for name in ("base.toml", "enumerate.dql"):
        if folder != HERE:
            shutil.copy(HERE / name, folder)
    with dlv.open(folder, create=True) as repo:
        # LeNet after its first hundred steps, so that there is something to gain.
        for name in ("network.json", "step-100.safetensors"):
            shutil.copy(LENET / name, folder)
        repo.add(folder / "network.json", folder / "step-100.safetensors")
        print(repo.commit("LeNet on digits, hardly trained", name="lenet"))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve())
