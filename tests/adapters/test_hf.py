"""What `add` is told of Hugging Face folders: made by hand here, by transformers elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import dlv.api as api
import dlv.versions.add as adding
import dlv.versions.checkout as checkouts
import dlv.versions.commit as committing
from dlv.adapters.checkpoint import Tensor
from dlv.adapters.folders import place_of
from dlv.adapters.hf import Advised, advise
from dlv.adapters.torch import reader as torch_files
from dlv.errors import Damaged, NotFound, UnsafeInput
from dlv.repository.handle import Repository
from dlv.versions.add import Added
from dlv.versions.commit import Request

torch = pytest.importorskip("torch", reason="torch is not installed")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers and what it uses


def model() -> Any:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    sizes = {"vocab_size": 50, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    labels = {0: "cat", 1: "dog"}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=1, id2label=labels)
    return transformers.GPT2LMHeadModel(config).eval()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model/ in parts, with a tokenizer, and the same weights for torch."""
    folder = tmp_path_factory.mktemp("hub") / "model"
    network = model()
    network.save_pretrained(folder, max_shard_size="20KB")
    words = tokenizers.models.WordLevel({f"w{i}": i for i in range(50)}, unk_token="w0")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(words))
    tokenizer.save_pretrained(folder)
    torch.save(network.state_dict(), folder / "pytorch_model.bin")
    (folder / "README.md").write_text("# A model\n")
    (folder / "merges.txt").write_text("#version: 0.2\na b\n")
    (folder / "tokenizer.model").write_bytes(b"\x08\x07\x12\x07pytorch" + bytes(100))
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository.init(tmp_path)[0]


def add(repository: Repository, *given: str, **options: Any) -> Added:
    return adding.add(repository, repository.root, given, adding.Request(**options))


def commit(repository: Repository) -> str:
    return committing.commit(repository, Request("made", "Ada", "gpt")).id


def checked_out(repository: Repository, target: Path) -> dict[str, bytes]:
    asked = checkouts.Request(
        "gpt@1", "Ada", target, lambda kind, path: adding.open_weights(path, kind), to=target
    )
    checkouts.checkout(repository, asked)
    return contents(target)


def contents(folder: Path) -> dict[str, bytes]:
    files = (p for p in folder.rglob("*") if p.is_file() and ".dlv" not in p.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(files)}


def test_a_model_folder_is_one_version(made: Path, repository: Repository, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "model")
    added = add(repository, "model")
    roles = {file.path.removeprefix("model/"): file.role for file in added.files}
    weights = {name for name, role in roles.items() if role == "weights"}
    assert len(weights) > 1
    assert all(name.startswith("model-0000") for name in weights)
    assert {name for name, role in roles.items() if role == "config"} == {"config.json"}
    assert [name for name, why in added.skipped] == ["model/pytorch_model.bin"]
    assert "the same weights as in" in added.skipped[0][1]
    commit(repository)
    with api.open(tmp_path) as repo:
        version = repo["gpt@1"]
        assert version.steps == [None]
        assert version.hyperparameters["n_embd"] == 16
        assert version.hyperparameters["id2label.0"] == "cat"
        assert "_from_model_config" not in version.hyperparameters
        state = model().state_dict()
        del state["lm_head.weight"]  # tied
        assert set(version.tensors) == set(state)
        for name, value in state.items():
            assert version.tensor(name).tobytes() == value.numpy().tobytes()
    back = checked_out(repository, tmp_path / "back")
    expected = contents(made)
    del expected["pytorch_model.bin"]
    assert back == {f"model/{name}": data for name, data in expected.items()}
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back" / "model").eval()
    tokens = torch.arange(8)[None]
    with torch.no_grad():
        assert torch.equal(loaded(tokens).logits, model()(tokens).logits)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "back" / "model")
    assert tokenizer.convert_tokens_to_ids("w7") == 7


def test_a_copy_that_is_asked_for(made: Path, repository: Repository, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "model")
    add(repository, "model", "model/pytorch_model.bin")
    commit(repository)
    assert checked_out(repository, tmp_path / "back") == {
        f"model/{name}": data for name, data in contents(made).items()
    }


def test_a_large_tokenizer(
    made: Path, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made, tmp_path / "model")
    monkeypatch.setattr(adding, "LARGE_FILE", 1000)
    (tmp_path / "model" / "other.bin2").write_bytes(bytes(2000))
    added = add(repository, "model")
    assert "model/tokenizer.json" in [file.path for file in added.files]
    assert "model/other.bin2" in [path for path, _ in added.skipped]


def test_what_people_say_counts(made: Path, repository: Repository, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "model")
    added = add(repository, "model", role="file")
    assert {file.role for file in added.files} == {"file"}
    assert added.skipped == []


def test_a_run_of_the_trainer(repository: Repository, tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed")

    rows = [torch.arange(8) + start for start in range(16)]
    data = [{"input_ids": row, "labels": row} for row in rows]
    arguments = transformers.TrainingArguments(
        str(tmp_path / "run"),
        max_steps=4,
        save_steps=2,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(model(), arguments, train_dataset=data)
    trainer.train()
    before = contents(tmp_path / "run")
    added = add(repository, "run")
    assert added.skipped == []
    commit(repository)
    with api.open(tmp_path) as repo:
        version = repo["gpt@1"]
        assert version.steps == [2, 4]
        assert list(version.metric("loss").steps) == [1, 2, 3, 4]
        assert version.hyperparameters["model_type"] == "gpt2"
        roles = {tensor.role for tensor in version.manifest.tensors}
        assert roles >= {"weight", "optimizer"}
        assert len(version.state_dict()) == len(trainer.model.state_dict()) - 1  # one is tied
    assert checked_out(repository, tmp_path / "back") == {
        f"run/{name}": data for name, data in before.items()
    }
    resumed = transformers.Trainer(model(), arguments, train_dataset=data)
    resumed.train(resume_from_checkpoint=str(tmp_path / "back" / "run" / "checkpoint-2"))
    last, again = trainer.model.state_dict(), resumed.model.state_dict()
    assert all(torch.equal(last[name], again[name]) for name in last)


CONFIG = {"model_type": "gpt2", "n_layer": 2}


def values(seed: int, *names: str) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(2, 3)).astype("f4") for name in names}


def torch_file(
    path: Path, arrays: Mapping[str, Any], tied: Mapping[str, str] | None = None
) -> None:
    """As torch.save writes a state dict."""
    tensors = [
        Tensor(
            *(name, "float32", array.shape, array.nbytes, array.tobytes),
            tied=(tied or {}).get(name),
        )
        for name, array in arrays.items()
    ]
    with path.open("wb") as out:
        torch_files.save(out, tensors, {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model in two parts, with what usually lies beside it."""
    made = tmp_path / "model"
    made.mkdir()
    (made / "config.json").write_text(json.dumps(CONFIG))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (made / name).write_text('{"model_max_length": 1000000000000000019884624838656}')
    for name in ("README.md", "merges.txt", "vocab.txt", "tokenizer.model"):
        (made / name).write_text("a,b\n1,2\n")
    parts = {
        "model-00001-of-00002.safetensors": ["a", "b"],
        "model-00002-of-00002.safetensors": ["c"],
    }
    for number, (name, tensors) in enumerate(parts.items()):
        save_file(values(number, *tensors), made / name)
    index(made, {tensor: name for name, tensors in parts.items() for tensor in tensors})
    return made


def index(folder: Path, weight_map: Any, name: str = "model.safetensors.index.json") -> None:
    (folder / name).write_text(
        json.dumps({"metadata": {"total_size": 72}, "weight_map": weight_map})
    )


def told(folder: Path) -> Advised:
    return advise(sorted(path for path in folder.rglob("*") if path.is_file()))


def roles(folder: Path) -> dict[str, str | None]:
    files = told(folder).files
    return {
        path.relative_to(folder).as_posix(): advice.role if advice.skip is None else "skipped"
        for path, advice in files.items()
    }


def why(folder: Path, name: str) -> str | None:
    return told(folder).files[folder / name].skip


def test_a_folder(folder: Path) -> None:
    assert roles(folder) == {
        "config.json": "config",
        "tokenizer.json": "file",
        "tokenizer_config.json": "file",
        "generation_config.json": "file",
        "README.md": "file",
        "merges.txt": "file",
        "vocab.txt": "file",
        "tokenizer.model": "file",
        "model.safetensors.index.json": "file",
    }
    assert told(folder).warnings == []


def test_other_folders_are_left_alone(folder: Path) -> None:
    (folder / "config.json").write_text('{"lr": 0.1}')
    assert roles(folder) == {}
    (folder / "config.json").write_text("[1]")
    assert roles(folder) == {}
    (folder / "config.json").unlink()
    assert roles(folder) == {}


def test_a_network_of_dlv_stays_one(folder: Path) -> None:
    (folder / "network.json").write_text('{"dlv_network": 1, "nodes": []}')
    assert "network.json" not in roles(folder)


def test_a_config_that_cannot_be_hyperparameters(folder: Path) -> None:
    for config in ({"max": 10**30}, {"a": {"b": 1}, "a.b": 2}):
        (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
        assert roles(folder)["config.json"] == "file"
        assert "without hyperparameters" in told(folder).warnings[0]


def test_a_missing_part(folder: Path) -> None:
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(NotFound, match=r"model-00002-of-00002\.safetensors is missing"):
        told(folder)
    (folder / "model.safetensors.index.json").unlink()
    with pytest.raises(NotFound, match="part 2 of 2 is missing"):
        told(folder)


def test_a_tensor_in_the_wrong_part(folder: Path) -> None:
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    index(folder, {"a": first, "b": second, "c": second})
    with pytest.raises(Damaged, match="`b`") as caught:
        told(folder)
    assert caught.value.why == f"it is in {first}"
    index(folder, {"a": first, "b": first, "c": second, "d": first})
    with pytest.raises(Damaged, match="`d`") as caught:
        told(folder)
    assert caught.value.why == "it is in no part"


def test_a_tensor_that_the_index_does_not_name(folder: Path) -> None:
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    index(folder, {"a": first, "c": second})
    assert told(folder).warnings == ["model.safetensors.index.json does not name b"]


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a\\b", "..", ""])
def test_an_index_that_points_elsewhere(folder: Path, name: str) -> None:
    index(folder, {"a": name})
    with pytest.raises(UnsafeInput, match="elsewhere"):
        told(folder)


@pytest.mark.parametrize("weight_map", [None, [], {"a": 1}, "x"])
def test_an_index_without_a_map(folder: Path, weight_map: Any) -> None:
    index(folder, weight_map)
    with pytest.raises(Damaged, match="maps no tensors"):
        told(folder)


def test_a_broken_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {')
    with pytest.raises(Damaged, match="is not JSON"):
        told(folder)


def test_parts_of_an_earlier_saving(folder: Path) -> None:
    save_file(values(7, "a"), folder / "model-00001-of-00003.safetensors")
    assert why(folder, "model-00001-of-00003.safetensors") == (
        "model.safetensors.index.json does not name it"
    )
    save_file(values(7, "a"), folder / "model.safetensors")
    assert "model.safetensors has the weights" in str(
        why(folder, "model-00001-of-00002.safetensors")
    )
    assert "model.safetensors" not in roles(folder)


def test_the_same_weights_for_torch(folder: Path) -> None:
    same = values(0, "a", "b") | values(1, "c")
    torch_file(folder / "pytorch_model.bin", same)
    reason = "the same weights as in model-00001-of-00002.safetensors"
    assert why(folder, "pytorch_model.bin") == reason
    # Safetensors leaves out all but one of tensors that share their elements.
    torch_file(folder / "pytorch_model.bin", {**same, "head": same["a"]}, {"head": "a"})
    assert why(folder, "pytorch_model.bin") == reason
    turned = {"head": same["a"], **same}
    torch_file(folder / "pytorch_model.bin", turned, {"a": "head"})
    assert why(folder, "pytorch_model.bin") == reason


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (lambda v: v | values(9, "a"), "a has other values"),
        (lambda v: v | {"extra": v["a"]}, "extra is in one of them only"),
        (lambda v: {name: v[name] for name in ("a", "b")}, "c is in one of them only"),
        (lambda v: v | {"a": v["a"].reshape(3, 2)}, "a has another form"),
    ],
)
def test_other_weights_for_torch(folder: Path, change: Any, difference: str) -> None:
    torch_file(folder / "pytorch_model.bin", change(values(0, "a", "b") | values(1, "c")))
    reason = why(folder, "pytorch_model.bin")
    assert reason is not None
    assert difference in reason
    assert "another version" in reason


def test_a_torch_file_that_cannot_be_read(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    assert "this file differs (pytorch_model.bin is" in str(why(folder, "pytorch_model.bin"))


def test_only_torch(folder: Path) -> None:
    for path in folder.glob("model*"):
        path.unlink()
    for number, name in enumerate("ab", 1):
        torch_file(folder / f"pytorch_model-0000{number}-of-00002.bin", values(number, name))
    parts = {name: f"pytorch_model-0000{n}-of-00002.bin" for n, name in enumerate("ab", 1)}
    index(folder, parts, "pytorch_model.bin.index.json")
    assert "pytorch_model-00001-of-00002.bin" not in roles(folder)
    assert roles(folder)["config.json"] == "config"
    index(folder, {"a": parts["b"]}, "pytorch_model.bin.index.json")
    with pytest.raises(Damaged):
        told(folder)


def test_other_frameworks_and_variants(folder: Path) -> None:
    for name in ("tf_model.h5", "flax_model.msgpack", "model.fp16.safetensors", "rust_model.ot"):
        (folder / name).write_bytes(b"x")
    cache = folder / ".cache" / "huggingface" / "download"
    cache.mkdir(parents=True)
    (cache / "config.json.metadata").write_text("x")
    found = roles(folder)
    assert [name for name, role in found.items() if role == "skipped"] == [
        *("flax_model.msgpack", "model.fp16.safetensors", "rust_model.ot", "tf_model.h5"),
        ".cache/huggingface/download/config.json.metadata",
    ]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """What a Trainer leaves: checkpoints, each with all that is needed to go on."""
    for step in (500, 1000, 90):
        made = tmp_path / "run" / f"checkpoint-{step}"
        made.mkdir(parents=True)
        (made / "config.json").write_text(json.dumps({**CONFIG, "step": step}))
        (made / "trainer_state.json").write_text('{"log_history": [{"step": 1, "loss": 2.0}]}')
        save_file(values(step, "a"), made / "model.safetensors")
        for name in ("training_args.bin", "rng_state.pth", "rng_state_1.pth", "scheduler.pt"):
            torch_file(made / name, values(1, "x"))
        torch_file(made / "optimizer.pt", values(2, "x"))
    return tmp_path / "run"


def test_checkpoints_of_a_trainer(run: Path) -> None:
    found = roles(run)
    chosen = {name: role for name, role in found.items() if role != "file"}
    assert chosen == {
        "checkpoint-1000/config.json": "config",
        "checkpoint-1000/trainer_state.json": "log",
    }
    assert "checkpoint-500/optimizer.pt" not in found
    files = {path.relative_to(run.parent).as_posix() for path in run.rglob("*")}
    state = {path for path in files if (p := place_of(path, files.__contains__)) and p.state}
    names = ("training_args.bin", "rng_state.pth", "rng_state_1.pth", "scheduler.pt")
    assert state == {f"run/checkpoint-{step}/{name}" for step in (90, 500, 1000) for name in names}


def test_what_lies_above_the_checkpoints_is_newer(run: Path) -> None:
    (run / "config.json").write_text(json.dumps(CONFIG))
    (run / "trainer_state.json").write_text('{"log_history": []}')
    save_file(values(1, "a"), run / "model.safetensors")
    chosen = {name: role for name, role in roles(run).items() if role != "file"}
    assert chosen == {"config.json": "config", "trainer_state.json": "log"}


def test_adapters_alone(run: Path) -> None:
    for made in run.iterdir():
        (made / "config.json").rename(made / "adapter_config.json")
        (made / "model.safetensors").rename(made / "adapter_model.safetensors")
    chosen = {name: role for name, role in roles(run).items() if role != "file"}
    assert chosen == {
        "checkpoint-1000/adapter_config.json": "config",
        "checkpoint-1000/trainer_state.json": "log",
    }


def test_two_runs(run: Path) -> None:
    (run / "checkpoint-500").rename(run.parent / "checkpoint-500")
    chosen = {name for name, role in roles(run.parent).items() if role == "config"}
    assert chosen == {"checkpoint-500/config.json", "run/checkpoint-1000/config.json"}
