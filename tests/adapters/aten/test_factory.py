"""Models made by FILE.py:FACTORY: the user's code is run, and leaves nothing behind."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dlv.adapters.aten.factory import factory_result, first_line
from dlv.errors import DlvError, NotFound, UsageError
from dlv.network.graph import Network

MODEL = """
import os, sys
from dataclasses import dataclass
import torch
import layers_of_mine

print("loading")
SIZE = 3

@dataclass
class Config:
    width: int = 4

class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(10, Config().width)
    def forward(self, words):
        return self.embed(words)

def make():
    import made_late
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(SIZE, layers_of_mine.OUT), torch.nn.ReLU())

def pair():
    return Words(), (torch.zeros(3, 4, dtype=torch.int64),)

model = make()

def number(): return 3
def leaves(): sys.exit(3)
def raises(): raise ValueError("no data\\nat all")
class Odd(BaseException):
    def __str__(self): raise ValueError
def odd(): raise Odd
class Leaving(torch.nn.Module):
    def forward(self, words): raise SystemExit(3)
def takes(width): return make()
def mixed():
    class Both(torch.nn.Module):
        def forward(self, words, x):
            return torch.nn.functional.one_hot(words, 4) + x
    return Both()
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "layers_of_mine.py").write_text("OUT = 2\n")
    (tmp_path / "made_late.py").write_text("")
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "syntax.py").write_text("def make(:\n")
    (tmp_path / "stops.py").write_text("raise SystemExit\n")
    return str(tmp_path / "model.py")


def network(file_and_name: str, *shapes: Any) -> Network:
    torch_export = pytest.importorskip("dlv.adapters.aten.live")
    pytest.importorskip("torch", reason="the models are torch modules: dlv[torch]")
    found: Network = torch_export.from_factory(file_and_name, shapes).network
    return found


class TestNetworks:
    def test_a_function(self, model: str) -> None:
        found = network(f"{model}:make", (1, 3))
        assert [node.name for node in found.nodes] == ["0", "1"]
        assert found.inputs[0].shape == ("B", 3)
        assert network(f"{model}:model", (1, 3)).id == found.id
        assert network(f"{model}:make", "5,3").id == found.id

    def test_a_class_and_the_dtype_that_it_takes(self, model: str) -> None:
        for shape in ((2, 5), "2,5:int64"):
            found = network(f"{model}:Words", shape)
            assert (found.inputs[0].shape, found.inputs[0].dtype) == (("B", 5), "int64")
        assert network(f"{model}:Words", "2,5:int32").inputs[0].dtype == "int32"
        found = network(f"{model}:mixed", "2,4:int64", (2, 4, 4))
        assert [item.dtype for item in found.inputs] == ["int64", "float32"]

    def test_with_its_own_examples(self, model: str) -> None:
        assert network(f"{model}:pair").inputs[0].shape == ("B", 4)
        assert network(f"{model}:pair", (2, 9)).inputs[0].shape == ("B", 9)

    def test_nothing_is_left_behind(
        self, model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        torch: Any = pytest.importorskip("torch")
        monkeypatch.setattr(sys, "dont_write_bytecode", False)
        before = list(sys.path), set(sys.modules), sys.dont_write_bytecode, os.getcwd()
        numbers = torch.get_rng_state()
        network(f"{model}:make", (1, 3))
        assert (list(sys.path), sys.dont_write_bytecode, os.getcwd()) == (before[0], *before[2:])
        assert not {"layers_of_mine", "made_late", "dlv_user_model"} & set(sys.modules)
        assert sorted(path.suffix for path in Path(model).parent.iterdir()) == [".py"] * 6
        assert torch.equal(torch.get_rng_state(), numbers)
        printed = capsys.readouterr()
        assert printed.out == ""
        assert "loading" in printed.err

    def test_another_module_of_the_same_name(self, model: str) -> None:
        network(f"{model}:make", (1, 3))
        Path(model).with_name("layers_of_mine.py").write_text("OUT = 7\n")
        assert network(f"{model}:make", (1, 3)).node("0").attrs["out"] == 7


WRONG = [
    ("none.py:make", (1, 3), NotFound, "no such file"),
    ("model.py:maek", (1, 3), NotFound, "has no maek"),
    ("model.py:", (1, 3), UsageError, "not FILE.py:FACTORY"),
    (":make", (1, 3), UsageError, "not FILE.py:FACTORY"),
    ("model.py:SIZE", (1, 3), UsageError, "SIZE in"),
    ("model.py:number", (1, 3), UsageError, "makes a int"),
    ("model.py:leaves", (1, 3), UsageError, "SystemExit: 3"),
    ("model.py:raises", (1, 3), UsageError, "ValueError: no data"),
    ("model.py:odd", (1, 3), UsageError, "Odd"),
    ("model.py:Leaving", (1, 3), UsageError, "SystemExit: 3"),
    ("model.py:takes", (1, 3), UsageError, "without arguments"),
    ("model.py:make", (1, 4), UsageError, "reduction dim"),
    ("model.py:make", (1, 3, 3, 3, "x"), UsageError, "is not a shape"),
    ("model.py:make", "1,x", UsageError, "is not a shape"),
    ("model.py:make", "1,3:float33", UsageError, "names no dtype"),
    ("model.py:make", (-1, 3), UsageError, "is not a shape"),
    ("model.py:make", None, UsageError, "unknown"),
    ("broken.py:make", (1, 3), UsageError, "nothing_of_that_name"),
    ("syntax.py:make", (1, 3), UsageError, "SyntaxError"),
    ("stops.py:make", (1, 3), UsageError, "SystemExit"),
]


@pytest.mark.parametrize(("what", "shape", "kind", "text"), WRONG)
def test_what_is_wrong_is_told(
    model: str, what: str, shape: Any, kind: type[DlvError], text: str
) -> None:
    before = list(sys.path)
    name = what if what.startswith(":") else str(Path(model).parent / what)
    with pytest.raises(kind) as caught:
        network(name, *([] if shape is None else [shape]))
    error = caught.value
    assert isinstance(error, kind)
    assert text in " ".join(map(str, (error.message, error.why, error.hint)))
    assert sys.path == before
    if what.endswith("maek"):
        assert "make" in error.did_you_mean


def test_an_environment_below_the_folder_stays_loaded(tmp_path: Path) -> None:
    """Modules of installed packages are shared: loading them twice may break them."""
    packages = tmp_path / "env" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "installed_there.py").write_text("")
    (tmp_path / "m.py").write_text(
        f"import sys; sys.path.append({str(packages)!r})\nimport installed_there\nmake = list\n"
    )
    with factory_result(f"{tmp_path / 'm.py'}:make") as found:
        assert found == []
    try:
        assert "installed_there" in sys.modules
    finally:
        del sys.modules["installed_there"]


def test_first_lines() -> None:
    assert first_line(ValueError("\n a \nb")) == "ValueError: a"
    assert first_line(KeyError()) == "KeyError"
    assert len(first_line(ValueError("x" * 1000))) == 300
