"""Whatever is typed: a query, or an error that says where it is wrong; `fuzzing.py` goes on."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dlv.demo.run as demos
from dlv.repository.handle import Repository


def load() -> ModuleType:
    path = Path(__file__).with_name("fuzzing.py")
    spec = importlib.util.spec_from_file_location("fuzzing", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fuzzing = load()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    folder = tmp_path_factory.mktemp("fuzz") / "demo"
    demos.demo(folder, "Ada <ada@example.org>")
    with Repository.find(folder) as found:
        yield found


def run(seed: int, count: int) -> dict[bool, int]:
    found = {True: 0, False: 0}
    for text in itertools.islice(fuzzing.texts(seed), count):
        found[fuzzing.parsed(text)] += 1
    return found


def test_texts_that_are_nearly_queries() -> None:
    found = run(11, 1500)
    assert found[True] > 100
    assert found[False] > 800


@given(st.text(max_size=80))
def test_any_text(text: str) -> None:
    fuzzing.parsed(text)


def test_half_a_character() -> None:
    with pytest.raises(fuzzing.SyntaxFault, match="dql:1:27: half a character"):
        fuzzing.parser.parse('select m where m.name = "a\ud800"')


def test_a_fault_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> None:
        raise KeyError(text)

    monkeypatch.setattr(fuzzing.parser, "parse", broken)
    with pytest.raises(KeyError):
        run(0, 1)


def test_queries_that_can_be_read_are_answered(repository: Repository) -> None:
    readable = filter(fuzzing.parsed, fuzzing.texts(5))
    before = repository.database.value("SELECT count(*) FROM fact")
    outcomes = {fuzzing.answered(repository, text) for text in itertools.islice(readable, 250)}
    assert {"Table", "WrongQuery"} <= outcomes
    assert repository.database.value("SELECT count(*) FROM fact") == before


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_more(repository: Repository, seed: int) -> None:
    for text in itertools.islice(fuzzing.texts(100 + seed), 10_000):
        if fuzzing.parsed(text):
            fuzzing.answered(repository, text)
