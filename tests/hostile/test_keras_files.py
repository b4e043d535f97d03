"""HDF5 and Keras files of the corpus end in a typed error, quickly, in little memory."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("h5py")

from tests.hostile.harness import attacked, ends_well
from tests.hostile.keras_files import CORPUS, HARMLESS

pytestmark = pytest.mark.hostile


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return attacked(tmp_path_factory.mktemp("keras"), {**CORPUS, **HARMLESS})


def test_there_are_enough() -> None:
    assert sum(name.endswith(".h5") for name in CORPUS) >= 40
    assert sum(name.endswith(".keras") for name in CORPUS) >= 40


@pytest.mark.parametrize("name", CORPUS)
def test_ends_well(results: dict[str, dict[str, Any]], name: str) -> None:
    ends_well(results[name])


@pytest.mark.parametrize("name", HARMLESS)
def test_runs_nothing(results: dict[str, dict[str, Any]], name: str) -> None:
    result = results[name]
    assert result["kind"] is None, result["text"]
    assert result["mebibytes"] < 100, result
    assert result["seconds"] < 1, result
