"""Repositories with small trained networks, with bounds and without."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from dlv.archiving.bounding.run import Asked, Outcome, Request, bound
from dlv.repository.handle import Repository
from tests.archiving.bounding.nets import CONV, MLP, digits, trained

Bound = Callable[..., Outcome]


class Silent:
    def advance(self, count: int) -> None: ...


@contextlib.contextmanager
def silent(what: str, total: int) -> Iterator[Silent]:
    yield Silent()


@pytest.fixture(scope="session")
def bounded() -> Bound:
    """bounded(repository, "net@1", .., calibration=None): as `archive --bounds` does."""

    def run(repository: Repository, *references: str, calibration: str | None = None) -> Outcome:
        return bound(repository, Request(references, Asked(calibration), "Ada"), progress=silent)

    return run


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Digits that nothing was trained on."""
    path = tmp_path_factory.mktemp("data") / "rows.npz"
    np.savez(path, x=digits()[0][1200:1400], y=digits()[1][1200:1400])
    return str(path)


@pytest.fixture(scope="session")
def once(
    tmp_path_factory: pytest.TempPathFactory,
    commit_model: Callable[..., str],
    bounded: Bound,
    rows: str,
) -> Path:
    """conv@1, conv@2 and mlp@1; the first and the last have bounds."""
    folder = tmp_path_factory.mktemp("bounded")
    with Repository.init(folder)[0] as repository:
        for name, nodes in (("mlp", MLP), ("conv", CONV)):
            commit_model(repository, name, trained(name)[0], nodes, root=True)
        commit_model(repository, "conv", trained("conv")[1])
        bounded(repository, "conv@1", "mlp@1", calibration=rows)
    return folder


@pytest.fixture
def repository(once: Path, tmp_path: Path) -> Iterator[Repository]:
    shutil.copytree(once, tmp_path / "repository")
    with Repository.find(tmp_path / "repository") as found:
        yield found
