"""Options of the whole test run, and versions made with few words."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import gc
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dlv.processors as processors

# Before numpy is loaded, here and in what is started from here. Tests run side by side, and two
# threads on a processor that is busy can take twenty times as long as one.
for _name in processors.VARIABLES:
    os.environ.setdefault(_name, "1")

# Files of tests lie in memory where there is room: thousands of fsyncs cost nothing there.
_memory = Path("/dev/shm")
if os.access(_memory, os.W_OK) and shutil.disk_usage(_memory).free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_memory))

import hypothesis
import numpy as np
import pytest
from safetensors.numpy import save_file

import dlv.dql.words.tables as tables
import dlv.repository.revisions as revisions
import dlv.repository.undo as undo
import dlv.versions.add as adding
import dlv.versions.commit as committing
import dlv.versions.remove as remove
from dlv.archiving.archive import Archived, archive
from dlv.archiving.budgets import Policy
from dlv.archiving.proposal import Request as ArchiveRequest
from dlv.repository.handle import Repository
from dlv.versions.add import Request as AddRequest
from dlv.versions.commit import Request

# How long one example takes says nothing on a busy machine.
hypothesis.settings.register_profile("dlv", deadline=None)
hypothesis.settings.load_profile("dlv")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-snapshots",
        action="store_true",
        help="rewrite the expected outputs under tests/commands/snapshots",
    )


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test with the mark `quick("a", "b*")`, the cases with other ids are slow."""
    for item in items:
        mark = item.get_closest_marker("quick")
        if mark is not None and isinstance(item, pytest.Function):
            case = item.callspec.id
            if not any(fnmatch.fnmatchcase(case, pattern) for pattern in mark.args):
                item.add_marker(pytest.mark.slow)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What is loaded by now stays: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def nothing_left_open() -> Iterator[None]:
    """A file or process that nobody closed is told of in the test file that left it, not in one
    that the garbage collector happens to run in. What is left then stays, and is not looked at
    again: libraries that tests have loaded, above all."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Ctrl-C works in the processes that tests start, though these tests were started without it,
    as by nohup or a shell without job control: a program inherits only that a signal is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def grammar_made_once() -> Iterator[None]:
    """Though each test has a home of its own, where its tables are kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "make_tables", functools.cache(tables.make_tables))
        yield


@pytest.fixture(autouse=True)
def own_trainer_forgotten() -> Iterator[None]:
    """Tests that train in this process write a module of this name, each into its own folder."""
    yield
    sys.modules.pop("own_trainer", None)


@pytest.fixture(scope="session")
def commit_model() -> Callable[..., str]:
    """commit_model(repository, name, tensors, nodes=None, ...) -> id of the new version.

    `tensors` are arrays by name, or lists of them by step; `nodes` are in the form of the plain
    network JSON, for an image of 8x8. `root`: no parent, else HEAD is it.
    """

    def make(
        repository: Repository,
        name: str,
        tensors: Mapping[Any, Any],
        nodes: Sequence[Mapping[str, Any]] | None = None,
        *,
        files: Mapping[str, str] | None = None,
        parameters: Mapping[str, Any] | None = None,
        message: str = "made",
        root: bool = False,
        size: int = 8,
        shape: Sequence[int] | None = None,
    ) -> str:
        folder = repository.root
        written: list[str] = []
        for path, content in (files or {}).items():
            (folder / path).write_text(content)
            written.append(path)
        if nodes is not None:
            image = {"name": "x", "shape": ["B", *(shape or [1, size, size])], "dtype": "float32"}
            network = {"dlv_network": 1, "inputs": [image], "nodes": nodes}
            network["outputs"] = [nodes[-1]["name"]]
            (folder / "network.json").write_text(json.dumps(network))
            written.append("network.json")
        by_step = tensors if all(isinstance(key, int) for key in tensors) else {None: tensors}
        for step, held in by_step.items():
            path = "model.safetensors" if step is None else f"ckpt-{step}.safetensors"
            if held:
                save_file(dict(held), folder / path)
                written.append(path)
        if root and repository.head is not None:
            with repository.change("test") as change:
                change.set_head(None)
        adding.add(repository, folder, written, AddRequest())
        request = Request(
            *(message, "Ada <ada@example.org>", name),
            parameters=parameters or {},
            parents=() if repository.head is None else (repository.head,),
        )
        return committing.commit(repository, request).id

    return make


@pytest.fixture(scope="session")
def archived() -> Callable[..., Archived]:
    """archived(repository, policy=...): its matrices stored as `dlv archive` would."""

    class Silent:
        def advance(self, count: int) -> None: ...

    @contextlib.contextmanager
    def silent(what: str, total: int) -> Iterator[Silent]:
        yield Silent()

    def run(repository: Repository, policy: Policy | None = None) -> Archived:
        request = ArchiveRequest(author="Ada <ada@example.org>", policy=policy or Policy(alpha=50))
        return archive(repository, request, progress=silent)

    return run


@pytest.fixture(scope="session")
def lived_once(tmp_path_factory: pytest.TempPathFactory, commit_model: Callable[..., str]) -> Path:
    """A repository with a history of all kinds of change; `lived` copies it."""
    folder = tmp_path_factory.mktemp("lived")
    nodes = [
        {"name": "flat", "op": "RESHAPE", "attrs": {"kind": "flatten"}, "inputs": ["x"]},
        {
            "name": "fc",
            "op": "FULL",
            "attrs": {"out": 10},
            "inputs": ["flat"],
            "params": {"weight": "fc.weight", "bias": "fc.bias"},
        },
        {"name": "relu", "op": "RELU", "attrs": {}, "inputs": ["fc"]},
    ]

    def weights(seed: int) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        shapes = {"fc.weight": (10, 64), "fc.bias": (10,), "table": (300, 70)}
        made = {name: rng.normal(0, 0.05, shape).astype("f4") for name, shape in shapes.items()}
        return made | {"same": np.arange(30_000, dtype="f4")}

    def log(steps: int) -> str:
        return "step,loss\n" + "".join(f"{step},{2 / step}\n" for step in range(1, steps))

    with Repository.init(folder)[0] as repository:
        (folder / "src").mkdir()
        files = {"train.py": "import torch\n", "src/model.py": "SEED = 1\n", "log.csv": log(30)}
        first = {100: weights(1), 200: weights(2)}
        commit_model(repository, "lenet", first, nodes, files=files, parameters={"lr": 0.1})
        revisions.set_tag(repository, "best", "lenet@1", "Ada")
        commit_model(repository, "lenet", {200: weights(3)}, files={"log.csv": log(40)})
        revisions.set_tag(repository, "best", "lenet@2", "Ada", move=True)
        revisions.set_tag(repository, "old", "lenet@1", "Ada")
        revisions.delete_tag(repository, "old", "Ada")
        commit_model(repository, "lenet", weights(4), parameters={"lr": 0.2})
        undo.undo(repository, "Ada")
        remove.remove(repository, ["lenet@1"], "Ada", steps="100")
        with repository.change("copy", "Ada") as change:
            change.set_next("wide", "copy")
        commit_model(repository, "wide", weights(5), files={"src/model.py": "SEED = 5\n"})
        commit_model(repository, "wide", weights(6))
        remove.remove(repository, ["wide@1"], "Ada", force=True)
        remove.remove(repository, ["wide@2"], "Ada", force=True)
        undo.undo(repository, "Ada")
        commit_model(repository, "lenet", weights(7), message="after an undo")
        (folder / "new.py").write_text("staged\n")
        adding.add(repository, folder, ["new.py"], AddRequest())
    return folder


@pytest.fixture
def lived(lived_once: Path, tmp_path: Path) -> Iterator[Repository]:
    """lenet@1 (step 100 removed), @2, @3 undone, @4; wide@1 removed, @2; a tag; a staged file."""
    shutil.copytree(lived_once, tmp_path / "lived")
    with Repository.find(tmp_path / "lived") as repository:
        yield repository
