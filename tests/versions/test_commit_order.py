"""In what order a commit does its work: the catalogue is locked for next to nothing of it."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import dlv.disk.durable as durable
import dlv.versions.add as adding
import dlv.versions.commit as committing
from dlv.repository.handle import Repository
from dlv.versions.add import Request as AddRequest
from dlv.versions.commit import Request


class Beside(durable.Failpoints):
    """Another process that would write to the catalogue whenever something becomes durable."""

    def __init__(self, catalogue: Path) -> None:
        self._other = sqlite3.connect(catalogue, timeout=0, isolation_level=None)
        self.could: list[str] = []
        self.had_to_wait: list[str] = []

    def hit(self, name: str) -> None:
        try:
            self._other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            self.had_to_wait.append(name)
        else:
            self._other.execute("ROLLBACK")
            self.could.append(name)

    def close(self) -> None:
        self._other.close()


@pytest.mark.parametrize("transaction_first", [False, True])
def test_nobody_waits_for_packs_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transaction_first: bool
) -> None:
    """Within the transaction nothing but the fact with its number is written. A commit that opened
    it before its packs are durable would be seen."""
    repository, _ = Repository.init(tmp_path)
    weights = {"w": np.random.default_rng(0).normal(size=(300, 100)).astype("f4")}
    save_file(weights, tmp_path / "weights.safetensors")
    (tmp_path / "train.py").write_text("pass\n")
    with repository:
        adding.add(repository, tmp_path, ["."], AddRequest())
        beside = Beside(repository.database_file)
        monkeypatch.setattr(durable, "failpoints", beside)
        whole = repository.database.atomic() if transaction_first else contextlib.nullcontext()
        with whole, contextlib.closing(beside):
            committing.commit(repository, Request("first", "ada", "net"))
        if transaction_first:
            assert not beside.could
            assert beside.had_to_wait.count("rename") > 1
        else:
            # A pack, the reference of files.git and the manifest; then the fact.
            assert beside.could.count("rename") >= 3
            assert beside.had_to_wait.count("rename") == 1
