"""The callback under the real Trainer of transformers."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dlv.api as api

torch = pytest.importorskip("torch", reason="torch is not installed")
os.environ["HF_HUB_OFFLINE"] = "1"
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    from dlv.integrations.transformers import DlvCallback

pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers and what it uses
Said = Callable[[], list[str]]


class Stop(transformers.TrainerCallback):  # type: ignore[misc, name-defined, unused-ignore]
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        if state.global_step == self.step:
            raise KeyError("here")


def train(callback: Any | None, folder: Path, fail_at: int = 0, **given: Any) -> Any:
    """Six steps; each logs, every third saves."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    rows = [torch.arange(8) + start for start in range(24)]
    data = [{"input_ids": row, "labels": row} for row in rows]
    settings: dict[str, Any] = {"max_steps": 6, "save_steps": 3, "logging_steps": 1}
    settings |= {"learning_rate": 0.01, "report_to": [], "use_cpu": True, "disable_tqdm": True}
    settings |= {"eval_strategy": "steps", "eval_steps": 2, "per_device_train_batch_size": 4}
    arguments = transformers.TrainingArguments(str(folder), **{**settings, **given})
    callbacks = [c for c in (Stop(fail_at) if fail_at else None, callback) if c is not None]
    trainer = transformers.Trainer(
        model, arguments, train_dataset=data, eval_dataset=data[:8], callbacks=callbacks
    )
    trainer.train()
    return trainer


def state_of(trainer: Any) -> list[bytes]:
    return [value.numpy().tobytes() for value in trainer.model.state_dict().values()]


def test_a_training(project: Path, said: Said) -> None:
    callback = DlvCallback("gpt", parameters={"note": "x"})
    trainer = train(callback, project / "out")
    assert said() == []
    with api.open() as repo:
        version = repo["gpt@1"]
        assert version.id == callback.version.id
        assert version.steps == [3, 6]
        for name, value in trainer.model.state_dict().items():
            assert version.tensor(name).tobytes() == value.numpy().tobytes()
        logged = {row["step"]: row["loss"] for row in trainer.state.log_history if "loss" in row}
        loss = version.metric("loss")
        assert dict(zip(loss.steps, loss.values, strict=True)) == logged
        assert list(version.metric("eval_loss").steps) == [2, 4, 6]
        settings = version.hyperparameters
        assert (settings["learning_rate"], settings["max_steps"]) == (0.01, 6)
        assert (settings["note"], settings["model.n_embd"]) == ("x", 16)
        assert not [key for key in settings if "dir" in key or "hub" in key]


def test_training_is_the_same_without_it(project: Path) -> None:
    plain = train(None, project / "a")
    after = torch.random.get_rng_state()
    callback = DlvCallback(every_steps=1, monitor="eval_loss")
    trainer = train(callback, project / "b")
    assert callback.version.name == "GPT2LMHeadModel"
    assert state_of(trainer) == state_of(plain)
    assert torch.equal(torch.random.get_rng_state(), after)
    files = [
        {p.relative_to(f).as_posix() for p in f.rglob("*")} for f in (project / "a", project / "b")
    ]
    assert files[0] == files[1]


def test_the_best_is_kept(project: Path) -> None:
    callback = DlvCallback("gpt", monitor="eval_loss", every_steps=100)
    train(callback, project / "out")
    values = callback.version.metric("eval_loss")
    best = min(zip(values.values, values.steps, strict=True))
    assert callback.version.hyperparameters["best.step"] == best[1]
    assert callback.version.steps == sorted({best[1], 6})


def test_going_on_from_a_checkpoint(project: Path) -> None:
    train(DlvCallback("gpt"), project / "out")
    arguments = {"max_steps": 9, "save_steps": 3}
    callback = DlvCallback("gpt")
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
    rows = [torch.arange(8) + start for start in range(24)]
    trainer = transformers.Trainer(
        transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)),
        transformers.TrainingArguments(
            str(project / "out"), report_to=[], use_cpu=True, disable_tqdm=True, **arguments
        ),
        train_dataset=[{"input_ids": row, "labels": row} for row in rows],
        callbacks=[callback],
    )
    trainer.train(resume_from_checkpoint=True)
    with api.open() as repo:
        second = repo["gpt@2"]
        assert second.parents == [repo["gpt@1"].id]
        assert second.steps == [9]


def test_a_training_that_fails(project: Path, said: Said) -> None:
    callback = DlvCallback("gpt", every_steps=2)
    with pytest.raises(KeyError, match="here"):
        train(callback, project / "out", fail_at=5)
    # The Trainer tells nobody: it is committed when the program ends, or the next one begins.
    assert not callback.version
    callback.recorder._at_exit()
    assert callback.version.steps == [2, 4, 5]
    assert " (stopped " in callback.version.message  # and that is said
    assert any("training was stopped" in text for text in said())


def test_a_failure_does_not_stop_it(failing: str, said: Said, tmp_path: Path) -> None:
    plain = train(None, tmp_path / "out")
    trainer = train(DlvCallback("gpt", every_steps=2, monitor="eval_loss"), tmp_path / "again")
    assert state_of(trainer) == state_of(plain)
    assert 1 <= len(said()) <= 2
    assert any(failing in text for text in said())


def test_other_processes_record_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers.Trainer, "is_world_process_zero", lambda _: False)
    train(DlvCallback("gpt"), project / "out")
    with api.open() as repo:
        assert len(repo) == 0
