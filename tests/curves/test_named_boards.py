"""What the words of `tensorboard` name: versions, a folder, or what somebody has mistyped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dlv.api as api
from dlv.curves.board import Board, DirectoryBoard, VersionsBoard, board_of
from dlv.errors import NotARepository, NotFound, UsageError
from dlv.repository.handle import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    with api.open(tmp_path / "models", create=True) as made:
        for value in (1.0, 2.0):
            made.commit("made", name="net", metrics={"loss": value})
        yield made.repository


@pytest.fixture
def told() -> list[str]:
    return []


def nowhere() -> Repository:
    raise NotARepository("saved queries: none")


class TestWhatWordsName:
    @pytest.fixture
    def of(self, repository: Repository, told: list[str]) -> Iterator[Callable[..., Board]]:
        made: list[Board] = []

        def name(*words: str, find: Callable[[], Repository] = lambda: repository) -> Board:
            made.append(board_of(words, repository.root, find, tell=told.append))
            return made[-1]

        yield name
        for board in made:
            board.close()

    def test_versions(self, of: Callable[..., Board]) -> None:
        assert isinstance(of(), VersionsBoard)
        assert isinstance(of("net@1", "net@2"), VersionsBoard)

    def test_a_folder(self, of: Callable[..., Board], repository: Repository) -> None:
        (repository.root / "runs").mkdir()
        for word in ("runs", "runs/", "./runs", str(repository.root / "runs")):
            assert isinstance(of(word), DirectoryBoard), word
            assert isinstance(of(word, find=nowhere), DirectoryBoard), word

    def test_a_version_that_is_called_like_a_folder(
        self, of: Callable[..., Board], repository: Repository
    ) -> None:
        (repository.root / "net").mkdir()
        assert isinstance(of("net"), VersionsBoard)
        assert isinstance(of("./net"), DirectoryBoard)
        assert isinstance(of("net/"), DirectoryBoard)

    def test_neither(self, of: Callable[..., Board], repository: Repository) -> None:
        (repository.root / "logs").mkdir()
        (repository.root / "logs" / "x.csv").write_text("step,loss")
        (repository.root / "x.csv").write_text("step,loss")
        with pytest.raises(NotFound, match="no version matches") as error:
            of("lgos")
        assert error.value.did_you_mean == ["logs"]
        with pytest.raises(NotFound, match=r"no such directory: `logs/x\.csv`") as error:
            of("logs/x.csv")
        assert str(error.value.hint).endswith("dlv tensorboard logs")
        with pytest.raises(NotFound, match="no such directory: `lgos`") as error:
            of("lgos", find=nowhere)
        assert error.value.did_you_mean == ["logs"]
        with pytest.raises(NotFound, match="no such directory:"):
            of("no/where", find=nowhere)
        with pytest.raises(NotFound, match=r"no version matches `x\.csv`") as error:
            of("x.csv")
        assert str(error.value.hint).endswith("dlv tensorboard .")
        with pytest.raises(NotFound, match="no checkpoint at step 5"):
            of("net@1/5")
        with pytest.raises(UsageError, match="not a version reference"):
            of("no/where")
        with pytest.raises(NotARepository):
            of(find=nowhere)
        (repository.root / "runs").mkdir()
        with pytest.raises(UsageError, match="a log folder cannot be"):
            of("net@1", "runs")
