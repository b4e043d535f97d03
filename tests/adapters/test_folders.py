"""Folders of a training's whole state and of pipelines: what `add` makes of them, and gets back."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

import dlv.api as api
import dlv.intake.checkpoints as intake
import dlv.versions.add as adding
import dlv.versions.checkout as checkouts
import dlv.versions.commit as committing
from dlv.adapters.folders import place_of
from dlv.errors import Damaged, UsageError
from dlv.repository.handle import Repository
from dlv.versions.add import Added
from dlv.versions.describe import describe

torch = pytest.importorskip("torch", reason="torch is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")  # of accelerate, transformers, and what they use
PARAMETERS = 8 * 16 + 16 + 2 * 16 + 16 * 4 + 4  # of a model of `Training`


class Counter:
    """An object of the user's; accelerate pickles what its state_dict says."""

    def __init__(self, average: Any = None) -> None:
        self.seen, self.average = 0, average

    def state_dict(self) -> dict[str, Any]:
        state = {"seen": self.seen, "step": 7}
        return state if self.average is None else {**state, "average": self.average}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen, self.average = state["seen"], state.get("average")


class Training:
    """Models, optimizers and schedulers that accelerate has prepared."""

    def __init__(self, models: int = 1, average: Any = None) -> None:
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
        self.accelerator = accelerate.Accelerator(cpu=True)
        torch.manual_seed(3)
        self.models: list[Any] = []
        self.optimizers: list[Any] = []
        self.schedulers: list[Any] = []
        for _ in range(models):
            layers = (torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4))
            model = torch.nn.Sequential(*layers)
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
            made = self.accelerator.prepare(model, optimizer, scheduler)
            for values, value in zip(self._lists, made, strict=True):
                values.append(value)
        self.counter = Counter(average)
        self.accelerator.register_for_checkpointing(self.counter)

    @property
    def _lists(self) -> tuple[list[Any], list[Any], list[Any]]:
        return self.models, self.optimizers, self.schedulers

    def go(self, steps: int) -> None:
        for _ in range(steps):
            x, y = torch.randn(8, 8), torch.randint(0, 4, (8,))
            for model, optimizer, scheduler in zip(*self._lists, strict=True):
                optimizer.zero_grad()
                self.accelerator.backward(torch.nn.functional.cross_entropy(model(x), y))
                optimizer.step()
                scheduler.step()
            self.counter.seen += 1

    def values(self) -> list[Any]:
        weights = [v.clone() for model in self.models for v in model.state_dict().values()]
        rates = [scheduler.get_last_lr() for scheduler in self.schedulers]
        return [*weights, torch.tensor(rates), torch.tensor(self.counter.seen), torch.rand(3)]


def saved(folder: Path, *, safe: bool = True, **given: Any) -> Training:
    training = Training(**given)
    training.go(3)
    training.accelerator.save_state(str(folder), safe_serialization=safe)
    return training


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.init(tmp_path)[0]


def add(repository: Repository, *given: str) -> Added:
    return adding.add(repository, repository.root, given, adding.Request())


def commit(repository: Repository) -> None:
    committing.commit(repository, committing.Request("made", "Ada", "net"))


def checked_out(repository: Repository, target: Path) -> Path:
    asked = checkouts.Request(
        "net@1", "Ada", target, lambda kind, path: adding.open_weights(path, kind), to=target
    )
    checkouts.checkout(repository, asked)
    return target


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(files)}


def roles(added: Added) -> dict[str, str]:
    return {Path(file.path).name: file.shown_role for file in added.files}


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("one_by_one", [True, False])
def test_a_training_goes_on_from_a_checkout(
    repository: Repository, tmp_path: Path, safe: bool, one_by_one: bool
) -> None:
    training = saved(tmp_path / "ck", safe=safe)
    files = sorted(f"ck/{name}" for name in os.listdir(tmp_path / "ck"))
    added = add(repository, *(files if one_by_one else ["ck"]))
    assert added.skipped == []
    assert added.warnings == []
    assert {n for n, role in roles(added).items() if role == "file"} == {
        *("scheduler.bin", "random_states_0.pkl", "custom_checkpoint_0.pkl")
    }
    commit(repository)
    back = checked_out(repository, tmp_path / "back")
    assert contents(back / "ck") == contents(tmp_path / "ck")
    training.go(2)
    expected = training.values()
    other = Training()
    other.accelerator.load_state(str(back / "ck"))
    other.go(2)
    assert all(map(torch.equal, expected, other.values()))
    with api.open(tmp_path) as repo:
        (net,) = repo.query("select m, m.n_params")
        assert net[1] == PARAMETERS
    described = describe(repository, "net@1")
    assert described.parameters == PARAMETERS
    assert {tensor.role for tensor in described.matrices if "state." in tensor.name} == {
        "optimizer"
    }
    assert described.manifest.snapshots[0].step is None
    assert len(described.manifest.snapshots) == 1


def test_several_models_and_tensors_of_the_user(repository: Repository, tmp_path: Path) -> None:
    training = saved(tmp_path / "epoch_4", models=2, average=torch.arange(5.0))
    add(repository, "epoch_4")
    commit(repository)
    described = describe(repository, "net@1")
    (snapshot,) = described.manifest.snapshots
    assert snapshot.step == 4  # not the one that the user's object speaks of
    tensors = {tensor.name: tensor for tensor in described.matrices}
    assert tensors["custom_checkpoint_0.average"].role == "extra"
    assert described.parameters == 2 * PARAMETERS
    with api.open(tmp_path) as repo:
        for model, prefix in zip(training.models, ("", "model_1."), strict=True):
            for name, value in model.state_dict().items():
                held = repo["net@1"].tensor(prefix + name)
                assert held.tobytes() == value.numpy().tobytes()
    back = checked_out(repository, tmp_path / "back")
    assert contents(back) == {
        f"epoch_4/{name}": data for name, data in contents(tmp_path / "epoch_4").items()
    }


def test_checkpoints_are_imported_without_state(repository: Repository, tmp_path: Path) -> None:
    for step in (1, 2):
        saved(tmp_path / f"run/checkpoint_{step}")
    request = intake.Request(["run"], "net", "Ada", tmp_path)
    imported = intake.import_checkpoints(repository, request)
    assert imported.steps == [1, 2]
    assert describe(repository, "net@1").parameters == PARAMETERS
    reasons = {Path(path).name: why for path, why in imported.skipped}
    assert reasons.keys() == {*("scheduler.bin", "random_states_0.pkl", "custom_checkpoint_0.pkl")}
    assert "state of a training" in reasons["scheduler.bin"]
    assert not intake.import_checkpoints(repository, request).new


def test_a_broken_state_is_refused(repository: Repository, tmp_path: Path) -> None:
    saved(tmp_path / "ck")
    path = tmp_path / "ck/scheduler.bin"
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(Damaged, match=r"scheduler\.bin"):
        add(repository, "ck")
    path = tmp_path / "ck/random_states_0.pkl"
    data = bytearray(path.read_bytes())
    data[data.index(torch.get_rng_state().numpy().tobytes()[-64:])] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match="random_states_0"):
        add(repository, "ck/random_states_0.pkl")


class Calls:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("write", [torch.save, lambda value, path: path.write_bytes(value)])
def test_nothing_in_a_state_is_run(
    repository: Repository, tmp_path: Path, write: Callable[..., Any]
) -> None:
    saved(tmp_path / "ck")
    value: Any = Calls(tmp_path / "ran")
    value = value if write is torch.save else pickle.dumps(value, 4)
    for name in ("scheduler.bin", "custom_checkpoint_0.pkl"):
        write(value, tmp_path / "ck" / name)
    added = add(repository, "ck")
    assert roles(added)["scheduler.bin"] == roles(added)["custom_checkpoint_0.pkl"] == "file"
    assert len(added.warnings) == 2
    assert all("would import posix.mkdir" in warning for warning in added.warnings)
    commit(repository)
    assert contents(checked_out(repository, tmp_path / "back") / "ck") == contents(tmp_path / "ck")
    assert not (tmp_path / "ran").exists()


# Pipelines. diffusers is not among what dlv is tested with: laid out as its 0.42.1 does it.


def component(folder: Path, kind: str, sizes: tuple[int, int], parts: int = 1) -> Any:
    """A model as diffusers' ModelMixin.save_pretrained writes it, perhaps in parts."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    config = {"_class_name": kind, "_diffusers_version": "0.42.1", "act_fn": "silu", "sizes": sizes}
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    torch.manual_seed(sum(sizes))
    model = torch.nn.Sequential(*(torch.nn.Linear(*sizes) for _ in range(parts)))
    state = {f"blocks.{name}": value for name, value in model.state_dict().items()}
    if parts == 1:
        path = folder / "diffusion_pytorch_model.safetensors"
        save_file(state, path, metadata={"format": "pt"})
        return state
    names = [f"diffusion_pytorch_model-{i + 1:05}-of-{parts:05}.safetensors" for i in range(parts)]
    where = {key: names[int(key.split(".")[1])] for key in state}
    for name in names:
        part = {key: value for key, value in state.items() if where[key] == name}
        save_file(part, folder / name, metadata={"format": "pt"})
    size = sum(value.nbytes for value in state.values())
    index = {"metadata": {"total_size": size}, "weight_map": where}
    text = json.dumps(index, indent=2, sort_keys=True) + "\n"
    (folder / "diffusion_pytorch_model.safetensors.index.json").write_text(text)
    return state


def pipeline(folder: Path, parts: int = 1) -> dict[str, Any]:
    """A pipeline, and its tensors by the names that they are to get."""
    states = {
        "unet": component(folder / "unet", "UNet2DConditionModel", (6, 5), parts),
        "vae": component(folder / "vae", "AutoencoderKL", (4, 3)),
    }
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 20}
    config = transformers.CLIPTextConfig(**sizes, num_attention_heads=2, max_position_embeddings=4)
    encoder = transformers.CLIPTextModel(config)
    encoder.save_pretrained(folder / "text_encoder")
    with safe_open(folder / "text_encoder/model.safetensors", "pt") as file:
        names = list(file.keys())
        states["text_encoder"] = {name: file.get_tensor(name) for name in names}
    (folder / "scheduler").mkdir()
    (folder / "scheduler/scheduler_config.json").write_text('{"_class_name": "DDIMScheduler"}\n')
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer/merges.txt").write_text("#version: 0.2\na b</w>\n")
    (folder / "tokenizer/vocab.json").write_text('{"a": 0}')
    index: dict[str, Any] = {
        "_class_name": "StableDiffusionPipeline",
        "_diffusers_version": "0.42.1",
        "safety_checker": [None, None],
        "requires_safety_checker": False,
        "scheduler": ["diffusers", "DDIMScheduler"],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }
    (folder / "model_index.json").write_text(json.dumps(index, indent=2) + "\n")
    return {f"{part}.{n}": v for part, state in states.items() for n, v in state.items()}


@pytest.mark.parametrize("place", ["pipe", "."])
@pytest.mark.parametrize("parts", [1, 3])
def test_a_pipeline_is_one_version(
    repository: Repository, tmp_path: Path, parts: int, place: str
) -> None:
    expected = pipeline(tmp_path / place, parts)
    before = contents(tmp_path / place) if place == "pipe" else None
    added = add(repository, place)
    assert (added.skipped, added.warnings) == ([], [])
    configs = [file.path for file in added.files if file.role == "config"]
    assert [Path(path).name for path in configs] == ["model_index.json"]
    commit(repository)
    described = describe(repository, "net@1")
    assert {tensor.name for tensor in described.matrices} == set(expected)
    with api.open(tmp_path) as repo:
        assert repo["net@1"].hyperparameters["_class_name"] == "StableDiffusionPipeline"
        for name, value in expected.items():
            assert repo["net@1"].tensor(name).tobytes() == value.numpy().tobytes()
    found = {part.name: part for part in described.components}
    assert list(found) == ["text_encoder", "unet", "vae", "scheduler", "tokenizer"]
    assert found["unet"].kind == "diffusers.UNet2DConditionModel"
    for name, part in found.items():
        tensors = [v for key, v in expected.items() if key.startswith(f"{name}.")]
        assert part.tensors == len(tensors)
        assert part.parameters == sum(value.numel() for value in tensors)
    assert described.parameters == sum(value.numel() for value in expected.values())
    back = checked_out(repository, tmp_path / "back")
    if before is not None:
        assert contents(back / place) == before
    loaded = transformers.CLIPTextModel.from_pretrained(back / place / "text_encoder")
    assert loaded.config.hidden_size == 8


def test_a_part_that_is_added_again_keeps_its_names(repository: Repository, tmp_path: Path) -> None:
    expected = pipeline(tmp_path / "pipe")
    add(repository, "pipe")
    commit(repository)
    shutil.rmtree(tmp_path / "pipe/vae")
    component(tmp_path / "pipe/vae", "AutoencoderKL", (4, 3), 2)
    weights = [str(path.relative_to(tmp_path)) for path in (tmp_path / "pipe").rglob("*.safetens*")]
    add(repository, *weights)
    commit(repository)
    tensors = {tensor.name for tensor in describe(repository, "net@2").matrices}
    assert set(expected) < tensors
    assert {"vae.blocks.0.weight", "vae.blocks.1.weight"} < tensors


def test_another_format_has_the_names_of_the_part(repository: Repository, tmp_path: Path) -> None:
    pipeline(tmp_path / "pipe")
    add(repository, "pipe")
    commit(repository)
    opened = lambda kind, path: adding.open_weights(path, kind)  # noqa: E731
    asked = checkouts.Request("net@1", "Ada", tmp_path, opened, to=tmp_path / "b", format="npz")
    checkouts.checkout(repository, asked)
    import numpy as np

    files = [*(tmp_path / "b").rglob("diffusion_pytorch_model.npz")]
    assert len(files) == 2
    for path in files:
        source = tmp_path / "pipe" / path.parent.name / "diffusion_pytorch_model.safetensors"
        assert set(np.load(path)) == set(load_file(source))


def test_copies_of_a_part_are_skipped(repository: Repository, tmp_path: Path) -> None:
    pipeline(tmp_path / "pipe")
    from safetensors.torch import load_file as load
    from safetensors.torch import save_file

    unet = tmp_path / "pipe/unet"
    state = load(unet / "diffusion_pytorch_model.safetensors")
    torch.save(state, unet / "diffusion_pytorch_model.bin")
    half = {name: value.half() for name, value in state.items()}
    save_file(half, unet / "diffusion_pytorch_model.fp16.safetensors")
    reasons = {Path(path).name: why for path, why in add(repository, "pipe").skipped}
    assert "the same weights as in" in reasons["diffusion_pytorch_model.bin"]
    assert "another variant" in reasons["diffusion_pytorch_model.fp16.safetensors"]


def test_an_index_that_names_what_is_elsewhere(repository: Repository, tmp_path: Path) -> None:
    pipeline(tmp_path / "project/pipe")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/secret.json").write_text("{}")
    path = tmp_path / "project/pipe/model_index.json"
    index = json.loads(path.read_text())
    index |= {"../../etc": ["diffusers", "X"], str(tmp_path / "etc"): ["os", "system"]}
    path.write_text(json.dumps(index))
    added = add(repository, "project")
    assert all("etc" not in file.path for file in added.files)
    assert sum("no such folder: " in warning for warning in added.warnings) == 2
    commit(repository)
    assert all(part.name.isidentifier() for part in describe(repository, "net@1").components)


def test_distributed_checkpoints_are_refused(repository: Repository, tmp_path: Path) -> None:
    distributed: Any = importlib.import_module("torch.distributed.checkpoint")
    model = torch.nn.Linear(3, 2).state_dict()
    distributed.save({"model": model}, checkpoint_id=tmp_path / "run/step-5", no_dist=True)
    saved(tmp_path / "run")
    (file,) = (tmp_path / "run").rglob("*.distcp")
    requests: list[Callable[[], object]] = [
        lambda: add(repository, "run"),
        lambda: add(repository, "run/step-5"),
        lambda: add(repository, str(file)),
        lambda: intake.import_checkpoints(
            repository, intake.Request(["run"], "net", "Ada", tmp_path)
        ),
    ]
    for ask in requests:
        with pytest.raises(UsageError, match=r"torch\.distributed\.checkpoint") as refused:
            ask()
        assert "dcp_to_torch step-5 step-5.pt" in str(refused.value.hint)


def test_places_of_files() -> None:
    files = {"run/random_states_0.pkl", "run/unet/config.json", "pipe/model_index.json"}

    def place(path: str) -> tuple[bool, str] | None:
        found = place_of(path, files.__contains__)
        return None if found is None else (found.state, found.prefix)

    assert place("run/sampler_1.bin") == place("run/scaler.pt") == (True, "")
    assert place("run/model.safetensors") == (False, "")
    assert place("run/optimizer_2.bin") == (False, "optimizer_2.")
    assert place("run/unet/model.safetensors") == (False, "unet.")
    assert place("run/other/model.safetensors") is None
    assert place("pipe/vae/model.safetensors") == (False, "vae.")
    assert place("elsewhere/scheduler.bin") is None
