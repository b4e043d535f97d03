from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dlv.training.trainers.contract as contract
from dlv.errors import NotFound, UsageError
from dlv.training.config import Config
from dlv.training.trial_files import TrialFiles
from tests.conformance.trainer import Run, TrainerSuite
from tests.training import small

OWN = Path(__file__).parents[1] / "own_function.py"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Modules that a test imported are imported anew by the next."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("own_"):
            del sys.modules[name]


class TestFunction(TrainerSuite):
    readers = small.READERS

    def created(self, folder: Path, **config: Any) -> TrialFiles:
        data = small.saved(folder / "blobs.npz", *small.blobs())
        shutil.copy(OWN, folder)
        given = {
            "trainer": "own_function:train",
            "input_data": data,
            "base_lr": 0.1,
            "val": 0.0,
            **config,
        }
        return small.created(folder, small.mlp(), small.mlp_weights(), given)


def own(folder: Path, text: str, name: str = "own_code") -> Path:
    (folder / f"{name}.py").write_text(text)
    return folder


def test_the_function_must_be_there(tmp_path: Path) -> None:
    own(tmp_path, "def train(net, config, steps, ckpt, log): pass")
    with pytest.raises(NotFound, match="has no function `trane`") as caught:
        contract.function_trainer("own_code:trane", tmp_path)
    assert caught.value.did_you_mean == ["train"]


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("", "own_nothing:train", "no module `own_nothing`"),
        ("", "own_no.thing:train", "cannot be imported|no module"),
        ("import own_missing", "own_code:train", "`own_code` cannot be imported"),
        ("1 / 0", "own_code:train", "`own_code` cannot be imported"),
        ("def train(:", "own_code:train", "`own_code` cannot be imported"),
        ("def train(net): pass", "own_code:train", "cannot be called"),
        ("train = 5", "own_code:train", "has no function `train`"),
        ("", "own_code", "no trainer `own_code`"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    tmp_path: Path, text: str, name: str, said: str
) -> None:
    own(tmp_path, text)
    with pytest.raises((NotFound, UsageError), match=said):
        contract.check(Config({"trainer": name}), tmp_path)
    assert "own_code" not in sys.modules or text in ("train = 5", "", "def train(net): pass")
    assert str(tmp_path) not in sys.path


def test_a_changed_function_is_another_trainer(tmp_path: Path) -> None:
    code = "def train(net, config, steps, ckpt, log): pass"
    config = Config({"trainer": "own_code:train"})
    first = contract.version(config, own(tmp_path, code))
    assert contract.version(config, tmp_path) == first
    (tmp_path / "own_code.py").write_text(code + "\n# changed")
    assert contract.version(config, tmp_path) != first


def test_a_function_of_a_package(tmp_path: Path) -> None:
    folder = tmp_path / "own_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    own(folder, "def train(net, config, steps, ckpt, log): pass", "inner")
    contract.function_trainer("own_package.inner:train", tmp_path)


def test_what_it_imports_while_it_runs(tmp_path: Path) -> None:
    own(tmp_path, "def loss():\n    return 0.5", "own_beside")
    own(
        tmp_path,
        "def train(net, config, steps, ckpt, log):\n"
        "    from own_beside import loss\n"
        "    log(steps, {'loss': loss()}, {})\n",
    )
    given = {"trainer": "own_code:train", "steps": 4, "log_every": 4}
    made = small.created(tmp_path, small.mlp(), small.mlp_weights(), given)
    assert Run(made.folder, small.READERS, 4).to(4).rows == {4: {"loss": 0.5}}
    assert str(tmp_path) not in sys.path


def test_what_it_raises_is_not_hidden(tmp_path: Path) -> None:
    own(tmp_path, "def train(net, config, steps, ckpt, log):\n    return [][steps]\n")
    given = {"trainer": "own_code:train", "steps": 4, "log_every": 4}
    made = small.created(tmp_path, small.mlp(), small.mlp_weights(), given)
    with pytest.raises(IndexError) as caught:
        Run(made.folder, small.READERS, 4).to(4)
    assert caught.traceback[-1].path == tmp_path / "own_code.py"
