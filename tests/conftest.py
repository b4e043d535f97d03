"""Options of the whole test run, and versions made with few words."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from safetensors.numpy import save_file

import dlv.add as adding
import dlv.commit as committing
from dlv.commit import Request
from dlv.repository import Repository
from dlv.staging import Request as AddRequest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-snapshots",
        action="store_true",
        help="rewrite the expected outputs under tests/commands/snapshots",
    )


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
    ) -> str:
        folder = repository.root
        written: list[str] = []
        for path, content in (files or {}).items():
            (folder / path).write_text(content)
            written.append(path)
        if nodes is not None:
            image = {"name": "x", "shape": ["B", 1, size, size], "dtype": "float32"}
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
        request = Request(message, "Ada <ada@example.org>", name, parameters=parameters or {})
        return committing.commit(repository, request).id

    return make
