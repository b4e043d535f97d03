"""The Python door, from the first commit to the last byte."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv
from dlv.api import Repo, Version
from dlv.api import open as open_repository
from dlv.errors import Conflict, DlvError, NotARepository, NotFound, UsageError

HOME = str(Path(dlv.__file__).parent.parent)


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repo]:
    for name in list(os.environ):
        if name.startswith("DLV_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DLV_USER_NAME", "Ada")
    monkeypatch.chdir(tmp_path)
    with dlv.open(tmp_path, create=True) as repo:
        yield repo


def weights(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"conv.w": rng.normal(size=(4, 3)).astype("f4"), "conv.b": rng.normal(size=4)}


def test_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DLV_DIR", raising=False)
    with pytest.raises(NotARepository):
        dlv.open(tmp_path)
    dlv.open(tmp_path, create=True).close()
    (tmp_path / "sub").mkdir()
    with dlv.open(tmp_path / "sub") as repo:
        assert repo.repository.root == tmp_path
    with dlv.open(str(tmp_path), create=True) as repo:
        assert len(repo) == 0
    monkeypatch.setenv("DLV_DIR", str(tmp_path / ".dlv"))
    with open_repository("/") as repo:
        assert repo.repository.root == tmp_path


def test_commit_and_read(repo: Repo, tmp_path: Path) -> None:
    own, earlier = weights(1), weights(2)
    made = repo.commit(
        "first",
        name="net",
        weights=own,
        checkpoints={100: earlier},
        parameters={"lr": 0.1},
        metrics={"acc": 0.9, "loss": [(1, 2.0), (2, math.nan)]},
    )
    assert repr(made) == f"<dlv version net@1 {made.id[:12]}>"
    assert (made.name, made.number, made.message, made.author) == ("net", 1, "first", "Ada")
    assert (made.parents, made.tags, made.steps, made.step) == ([], (), [100, None], None)
    assert made.created.endswith("Z")
    assert made.hyperparameters == {"lr": 0.1}
    assert made.tensors == {"conv.b": ("float64", (4,)), "conv.w": ("float32", (4, 3))}
    for name, value in own.items():
        np.testing.assert_array_equal(made.tensor(name), value)
        assert bytes(made.raw(name)) == value.tobytes()
    for version in (made.at(100), repo["net/100"], repo[f"{made.id[:8]}/100"]):
        assert (version.step, version.id) == (100, made.id)
        np.testing.assert_array_equal(version.tensor("conv.w"), earlier["conv.w"])
    assert repr(made.at(100)).startswith("<dlv version net@1/100 ")
    assert made.metrics["acc"].last == 0.9
    assert (str(made.metrics["loss"].last), made.metrics["loss"].min) == ("nan", 2.0)
    loss = made.metric("loss")
    assert list(loss.steps) == [1, 2]
    assert math.isnan(loss.values[1])
    assert made.network is None
    assert made.files == []
    assert not (tmp_path / ".dlv/runs").exists() or not list((tmp_path / ".dlv/runs").iterdir())


def test_looking_up(repo: Repo) -> None:
    nothing = repo.head
    assert nothing is None
    assert repo.names == []
    one = repo.commit("1", name="a", weights=weights(1), metrics={"acc": 0.5})
    two = repo.commit("2", weights=weights(2), metrics={"acc": 0.9})
    three = repo.commit("3", weights=weights(3), parents=["a@1"])
    assert [version.id for version in repo] == [three.id, two.id, one.id]
    assert len(repo) == 3
    assert repo.names == ["a"]
    assert repo.head is not None
    assert repo.head.id == repo["a"].id == three.id
    assert three.parents == [one.id]
    assert repo["a@best:acc"].id == two.id
    assert "a@2" in repo
    assert "a@9" not in repo
    assert "a b@@" not in repo
    assert 5 not in repo
    with pytest.raises(NotFound):
        repo["b"]
    with pytest.raises(NotFound) as found:
        repo["aa"]
    assert "did you mean 'a'?" in found.value.__notes__


def test_what_is_not_there(repo: Repo) -> None:
    made = repo.commit("1", name="a", weights=weights(), metrics={"loss": 1.0})
    for call, near in (
        (lambda: made.tensor("conv.v"), "conv.w"),
        (lambda: made.metric("los"), "loss"),
    ):
        with pytest.raises(NotFound) as found:
            call()
        assert near in found.value.did_you_mean
        assert f"did you mean {near!r}" in "".join(traceback.format_exception(found.value))
    with pytest.raises(NotFound):
        made.file("train.py")
    with pytest.raises(NotFound):
        made.at(7)
    empty = repo.commit("2", name="b", parents=[], allow_empty=True)
    assert empty.tensors == made.tensors  # carried on from HEAD


def test_a_version_without_weights(repo: Repo) -> None:
    made = repo.commit("1", name="a", parameters={"lr": 1})
    assert made.steps == []
    for call in (lambda: made.tensors, lambda: made.tensor("w"), lambda: made.step):
        with pytest.raises(NotFound, match="a@1 has no weights"):
            call()


def test_files(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()")
    (tmp_path / "net.json").write_text(
        '{"dlv_network": 1, "inputs": [{"name": "x", "shape": ["B", 4], "dtype": "float32"}],'
        ' "nodes": [{"name": "r", "op": "RELU", "inputs": ["x"]}], "outputs": ["r"]}'
    )
    assert repo.add("train.py", tmp_path / "net.json") == ["train.py", "net.json"]
    made = repo.commit("1", name="a")
    assert made.files == ["net.json", "train.py"]
    assert made.file("train.py") == b"print()"
    assert made.network is not None
    assert [node.name for node in made.network.nodes] == ["r"]


def test_staged_and_given_weights(repo: Repo, tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", extra=np.ones(3))
    repo.add("other.npz")
    made = repo.commit("1", name="a", weights=weights())
    assert set(made.tensors) == {"conv.w", "conv.b", "extra"}


def test_a_failed_commit_keeps_no_copies(repo: Repo, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing staged"):
        repo.commit("1", name="a")
    with pytest.raises(UsageError, match="named NAME@1,"):
        repo.commit("1", weights=weights())
    with pytest.raises(UsageError, match="x "):
        repo.commit("1", name="a", weights={"x": object()})
    with pytest.raises(UsageError, match="out of range"):
        repo.commit("1", name="a", metrics={"loss": [(2**70, 1.0)]})
    assert len(repo) == 0
    assert not list((tmp_path / ".dlv/runs").iterdir())


@pytest.mark.parametrize("kind", [float, np.float64, np.float32, np.float16, np.array])
def test_single_metrics_of_any_kind(repo: Repo, kind: Any) -> None:
    made = repo.commit("1", name="a", metrics={"loss": kind(0.5), "acc": [(1, kind(0.25))]})
    assert (made.metrics["loss"].last, made.metrics["acc"].last) == (0.5, 0.25)


def test_torch_weights(repo: Repo) -> None:
    torch: Any = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).to(torch.bfloat16)
    made = repo.commit("1", name="a", weights=model.state_dict())
    state = model.state_dict()
    assert {name: shape for name, (_, shape) in made.tensors.items()} == {
        name: tuple(value.shape) for name, value in state.items()
    }
    assert made.tensors["0.weight"][0] == "bfloat16"
    for name, value in made.state_dict().items():
        np.testing.assert_array_equal(value, state[name].float().numpy())
    eight = state["0.weight"].to(torch.float8_e4m3fn)
    made = repo.commit("2", weights={"w": eight})
    assert made.tensors == {"w": ("float8_e4m3", (2, 3))}
    np.testing.assert_array_equal(made.tensor("w"), eight.float().numpy())


def test_state_dict_leaves_optimizers_out(repo: Repo, tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, tmp_path / "ckpt.pt")
    repo.add("ckpt.pt")
    made = repo.commit("1", name="a")
    assert len(made.tensors) > len(made.state_dict()) == 2


def _stopped(repo: Repo) -> None:
    with repo.run("net") as run:
        run.checkpoint(weights(3), step=3)
        raise ZeroDivisionError


def test_a_run_takes_what_loops_have(repo: Repo) -> None:
    """The habit of W&B, and losses that still have their gradient."""
    torch = pytest.importorskip("torch")
    with repo.run("net") as run:
        run.log({"loss": torch.ones((), requires_grad=True) * 2, "val/acc": 0.5}, step=3)
    assert repo["net"].metrics["loss"].last == 2.0
    assert repo["net"].metrics["val/acc"].last_step == 3


def test_objects_say_what_they_are(repo: Repo, tmp_path: Path) -> None:
    assert {"open", "log_model"} <= set(dir(dlv))
    assert repr(repo) == f"<dlv repository {tmp_path}: 0 versions>"
    version = repo.commit("First", name="net", weights=weights())
    assert repr(version) == f"<dlv version net@1 {version.id[:12]}>"
    assert repr(version.open()) == "<dlv reader of net@1, 2 tensors>"


@pytest.mark.parametrize(
    ("wrong", "call"),
    [
        ('repo["nett"]', "repo.names"),
        ('repo["net@2"]', '[version for version in repo if version.name == "net"]'),
        ('repo["net"].at(3)', 'repo["net@1"].steps'),
        ('repo["net@best:foo"]', 'repo["net"].metrics'),
        ('dlv.open("/")', "dlv.open(PATH, create=True)"),
    ],
)
def test_hints_are_python(repo: Repo, wrong: str, call: str) -> None:
    """What a traceback shows below the message; at the command line hints are commands."""
    with repo.run("net") as run:
        run.log(loss=1.0, step=1)
        run.checkpoint(weights(), step=1)
        run.checkpoint(weights(1), step=2)
    with pytest.raises(DlvError) as caught:
        eval(wrong, {"repo": repo, "dlv": dlv})
    hint = traceback.format_exception_only(caught.value)[-1].strip()
    assert hint.endswith(call)
    assert "dlv list" not in hint
    assert str(caught.value.hint).split(": ")[-1].startswith("dlv ")


def test_a_run(repo: Repo) -> None:
    with repo.run("net", "my run", parameters={"lr": 0.1}) as run:
        run.parameters["epochs"] = 2
        for step in (1, 2):
            run.log(step=step, loss=1 / step)
            run.checkpoint(weights(step))
    version = run.version
    assert isinstance(version, Version)
    assert (version.message, version.steps, version.step) == ("my run", [1, 2], 2)
    assert version.hyperparameters == {"lr": 0.1, "epochs": 2}
    assert version.metrics["loss"].last == 0.5
    with pytest.raises(UsageError, match="cannot be a name"):
        repo.run("a/b")
    with pytest.raises(ZeroDivisionError):
        _stopped(repo)
    assert repo["net"].message == "run of net (stopped by ZeroDivisionError)"
    with repo.run("net") as run:
        run.log(loss=1.0)
    # Nobody trained the weights of the run before again: they are not of this one.
    assert repo["net"].steps == []
    assert repo["net"].hyperparameters == {}
    assert repo["net"].parents == [repo["net~1"].id]


def test_runs_of_different_models_have_nothing_in_common(repo: Repo) -> None:
    with repo.run("one", parameters={"lr": 0.1}) as run:
        run.checkpoint(weights(1), step=1)
    with repo.run("two", parameters={"layers": 3}) as run:
        run.log(loss=1.0)
    assert repo["two"].parents == []
    assert repo["two"].hyperparameters == {"layers": 3}
    assert repo["two"].steps == []
    with repo.run("one") as run:
        run.checkpoint(weights(2), step=1)
    assert repo["one"].parents == [repo["one@1"].id]
    orphan = repo.commit("alone", name="three", weights=weights(), orphan=True)
    assert orphan.parents == []


def test_every_way_to_commit_chooses_the_same_parent(repo: Repo) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    model, other = torch.nn.Linear(4, 3), torch.nn.Conv2d(1, 2, 3)
    example, image = torch.zeros(1, 4), torch.zeros(1, 1, 5, 5)
    first = repo.log_model(model, example, name="first")
    tuned = repo.log_model(model, example, name="tuned")
    assert tuned.parents == [first.id]
    apart = repo.log_model(other, image, name="apart")
    assert apart.parents == []
    state = {name: value.numpy() + 1 for name, value in model.state_dict().items()}
    assert repo.commit("again", name="tuned", weights=state).parents == [tuned.id]
    with repo.run("by-a-run") as run:
        run.checkpoint(model, step=1)
    assert repo["by-a-run"].parents == [repo["tuned"].id]


@pytest.mark.parametrize("wrong", ["high", (1, 2), [3], None])
def test_metrics_that_are_none(repo: Repo, wrong: Any) -> None:
    with pytest.raises(UsageError, match="the metric `a` is"):
        repo.commit("m", name="net", weights=weights(), metrics={"a": wrong})


def test_a_tag_in_the_way_of_a_run(repo: Repo) -> None:
    made = repo.commit("1", name="a", allow_empty=True)
    with repo.repository.change("tag") as change:
        change.record("tag", "best", {"version": made.id})
    assert repo["best"].tags == ("best",)
    with pytest.raises(Conflict, match="is already a tag") as found, repo.run("best") as run:
        run.checkpoint(weights())
    assert "are saved in" in (found.value.hint or "")


@pytest.mark.slow
def test_users_see_types(tmp_path: Path) -> None:
    """What mypy knows of the public names, for code outside of dlv."""
    pytest.importorskip("mypy")
    code = tmp_path / "user.py"
    code.write_text(
        "import dlv\n"
        "repo = dlv.open('.')\n"
        "version = repo['a']\n"
        "reveal_type(repo)\n"
        "reveal_type(version)\n"
        "reveal_type(version.tensor('w'))\n"
        "reveal_type(version.hyperparameters)\n"
        "reveal_type(repo.commit('m'))\n"
        "with repo.run('a') as run:\n"
        "    reveal_type(run)\n"
        "reveal_type(run.version)\n"
        "reveal_type(dlv.__version__)\n"
        "reveal_type(dlv.log_model(1, 2))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "user.py"],
        cwd=tmp_path,
        env=dict(os.environ, MYPYPATH=HOME, PYTHONPATH=HOME),
        capture_output=True,
        text=True,
        check=False,
    )
    found = [line.split('"')[1] for line in done.stdout.splitlines() if "Revealed" in line]
    assert found == [
        "dlv.api.Repo",
        "dlv.versions.version.Version",
        "numpy.ndarray[tuple[Any, ...], numpy.dtype[Any]]",
        "dict[str, Any]",
        "dlv.versions.version.Version",
        "dlv.runs.Run[dlv.versions.version.Version]",
        "dlv.versions.version.Version | None",
        "str",
        "dlv.versions.version.Version",
    ], done.stdout
