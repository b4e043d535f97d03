"""Whole models of transformers and torchvision: the same everywhere, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is the oracle: dlv[torch]")
pytest.importorskip("onnxruntime", reason="one of the engines")

from tests.idioms.architectures import TORCHVISION, TRANSFORMERS  # noqa: E402
from tests.idioms.cells import EQUAL, Trial  # noqa: E402
from tests.idioms.table import Idiom  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of the other packages
]
RUN = ["import", "torch32", "ort", "onnx", "module", "state", "pt2", "pt2-torch32", "pt2-module"]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", list(TRANSFORMERS))
def test_of_transformers(name: str) -> None:
    pytest.importorskip("transformers")
    check(TRANSFORMERS[name])


@pytest.mark.parametrize("name", list(TORCHVISION))
def test_of_torchvision(name: str) -> None:
    pytest.importorskip("torchvision")
    check(TORCHVISION[name])


def check(idiom: Idiom) -> None:
    row = Trial(idiom).row(RUN)
    assert {cell: f"{found.kind}: {found.text}" for cell, found in row.bad.items()} == {}
    for cell in ("import", "torch32", "module", "state"):
        assert row.cells[cell].kind == EQUAL, row.cells[cell]
