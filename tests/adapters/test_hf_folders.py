"""`dlv add` of folders that transformers itself wrote, and what from_pretrained makes of them."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

import dlv.api as api
import dlv.versions.add as adding
import dlv.versions.checkout as checkouts
import dlv.versions.commit as committing
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
    assert "once more" in added.skipped[0][1]
    commit(repository)
    with api.open(tmp_path) as repo:
        version = repo["gpt@1"]
        assert version.steps == [None]
        assert version.hyperparameters["n_embd"] == 16
        assert version.hyperparameters["id2label.0"] == "cat"
        assert "_from_model_config" not in version.hyperparameters
        state = model().state_dict()
        del state["lm_head.weight"]  # tied
        assert set(version.matrices) == set(state)
        for name, value in state.items():
            assert version.matrix(name).tobytes() == value.numpy().tobytes()
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
        assert list(version.series("loss").steps) == [1, 2, 3, 4]
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
