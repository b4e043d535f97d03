from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlv.adapters.data import sets as data
from dlv.adapters.data.sets import UNVERIFIED, Parts, fingerprint_of, open_parts
from dlv.errors import DlvError, NotFound, UsageError

X = np.arange(12, dtype=np.float32).reshape(6, 2)
Y = np.array([0, 1, 2, 0, 1, 2])


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("own_"):
            del sys.modules[name]


def opened(where: str, folder: Path, shape: Any = (2,), **said: Any) -> Parts:
    return open_parts(where, said, [("x", shape)], folder)


def inputs(found: Any) -> Any:
    column = found.inputs["x"]
    return column.read(0, found.count).tolist()


def labels(found: Any) -> Any:
    return found.labels.read(0, found.count).tolist()


NAMES = [
    ("x", "y", "x_val", "y_val"),
    ("x_train", "y_train", "x_val", "y_val"),
    ("train_images", "train_labels", "valid_images", "valid_labels"),
    ("X", "Y", "X_validation", "Y_validation"),
    ("data", "labels", "val_data", "val_labels"),
]


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("kind", ["npz", "folder"])
def test_parts_by_the_names_of_arrays(tmp_path: Path, names: tuple[str, ...], kind: str) -> None:
    arrays = dict(zip(names, (X[:4], Y[:4], X[4:], Y[4:]), strict=True))
    arrays["x_test"] = X + 100  # in neither
    where = "d.npz" if kind == "npz" else "d"
    if kind == "npz":
        np.savez(tmp_path / "d.npz", **arrays)  # type: ignore[arg-type]
    else:
        (tmp_path / "d").mkdir()
        for name, array in arrays.items():
            np.save(tmp_path / "d" / f"{name}.npy", array)
    found = opened(where, tmp_path)
    assert inputs(found.train) == X[:4].tolist()
    assert labels(found.train) == Y[:4].tolist()
    assert inputs(found.validation) == X[4:].tolist()
    assert labels(found.validation) == Y[4:].tolist()
    assert found.fingerprint == data.fingerprint(tmp_path / where)


def test_one_part_alone(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=X, y=Y)
    found = opened("d.npz", tmp_path)
    assert found.validation is None
    assert found.batches is None
    # What is all there is counts, whatever it is called.
    np.savez(tmp_path / "e.npz", x_test=X, y_test=Y)
    assert labels(opened("e.npz", tmp_path).train) == Y.tolist()


def test_settings_hold_for_both_parts(tmp_path: Path) -> None:
    texts = np.array(["b", "a", "c", "b", "a", "c"])
    np.savez(tmp_path / "d.npz", x=X[:4], y=texts[:4], x_val=X[4:5], y_val=texts[5:])
    found = opened("d.npz", tmp_path, scale=0.5)
    assert inputs(found.train) == (X[:4] / 2).tolist()
    assert inputs(found.validation) == (X[4:5] / 2).tolist()
    assert labels(found.train) == [1, 0, 2, 1]
    assert labels(found.validation) == [2]  # by the classes of the other part
    with pytest.raises(UsageError, match=r"no setting data\.scael"):
        opened("d.npz", tmp_path, scael=1)


def test_csv(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("a,label,b\n1,x,2\n3,y,4\n")
    found = opened("d.csv", tmp_path)
    assert inputs(found.train) == [[1, 2], [3, 4]]
    assert labels(found.train) == [0, 1]
    assert found.fingerprint == data.fingerprint(tmp_path / "d.csv")


def test_images(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    for part in ("train", "val"):
        for number, name in enumerate(("ant", "bee")):
            (tmp_path / "d" / part / name).mkdir(parents=True)
            picture = np.full((3, 3), 10 * number, np.uint8)
            pillow.fromarray(picture).save(tmp_path / "d" / part / name / "1.png")
    found = opened("d", tmp_path, (1, 3, 3))
    assert labels(found.train) == labels(found.validation) == [0, 1]
    assert np.shape(inputs(found.train)) == (2, 1, 3, 3)
    assert found.train is not None
    assert found.train.classes == ("ant", "bee")
    assert opened("d/train", tmp_path, (1, 3, 3)).validation is None


def own(folder: Path, text: str) -> Path:
    (folder / "own_data.py").write_text("import numpy as np\n" + text)
    return folder


def test_a_function_that_returns_arrays(tmp_path: Path) -> None:
    own(
        tmp_path,
        "def make(kind='all', size=6):\n"
        "    x = np.arange(12.).reshape(6, 2)\n"
        "    return {'x': x[:4], 'y': np.arange(4), 'x_val': x[4:], 'y_val': np.arange(2)}\n"
        "make.fingerprint = 'mine-1'\n",
    )
    found = opened("python:own_data:make", tmp_path)
    assert labels(found.train) == [0, 1, 2, 3]
    assert labels(found.validation) == [0, 1]
    assert found.fingerprint == "mine-1"
    assert fingerprint_of("python:own_data:make", tmp_path) == "mine-1"


def test_a_function_that_makes_batches(tmp_path: Path) -> None:
    own(
        tmp_path,
        "def make(seed, step):\n    return np.full((3, 2), seed), np.full(3, step)\n"
        "def rows():\n    return np.zeros((2, 2)), np.arange(2)\n"
        "make.validation = rows\n",
    )
    found = opened("python:own_data:make", tmp_path)
    assert found.train is None
    assert found.batches is not None
    x, y = found.batches(7, 3)
    assert (x.tolist(), y.tolist()) == ([[7, 7]] * 3, [3, 3, 3])
    assert labels(found.validation) == [0, 1]
    assert found.fingerprint is None
    name = "python:own_data:make"
    assert fingerprint_of(name, tmp_path) == f"{UNVERIFIED}{name}"
    with pytest.raises(UsageError, match=r"config\.data says how rows are read"):
        opened(name, tmp_path, scale=2)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("nothing.npz", "nothing.npz"),
        ("python:own_nothing:make", "no module"),
        ("python:own_data:nothing", "no function"),
        ("python:own_data:bad", "ZeroDivisionError"),
        ("own_data.py", "is not data that dlv can read"),
        ("empty", "has no data"),
    ],
)
def test_what_is_no_data(tmp_path: Path, where: str, said: str) -> None:
    own(tmp_path, "def bad():\n    return 1 / 0\n")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DlvError) as caught:
        opened(where, tmp_path)
    assert said in f"{caught.value.message} {caught.value.why}"


def test_a_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,y\n1,2\n")
    (tmp_path / "b.csv").write_text("a,y\n1,2\n")
    assert fingerprint_of("a.csv", tmp_path) == fingerprint_of("b.csv", tmp_path)
    (tmp_path / "b.csv").write_text("a,y\n1,3\n")
    assert fingerprint_of("a.csv", tmp_path) != fingerprint_of("b.csv", tmp_path)
    with pytest.raises(NotFound):
        fingerprint_of("c.csv", tmp_path)
