"""Folders of quarantine: their lists, what moves there and back, and what a crash leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

import dlv.disk.durable as durable
import dlv.repository.quarantine as quarantine
import dlv.upkeep.small_files as small_files
from dlv.errors import NotFound
from dlv.repository.handle import Repository


@pytest.fixture
def paths(lived: Repository) -> list[Path]:
    return sorted(lived.manifests.glob("*/*.json"))[:2]


def test_in_and_out(lived: Repository, paths: list[Path]) -> None:
    contents = [path.read_bytes() for path in paths]
    place = quarantine.begin(lived, paths, "gc", [{"id": "1", "version": "a@1", "steps": None}])
    assert all(path.exists() for path in paths)
    assert quarantine.waiting(lived) == {path: place.target(origin(lived, path)) for path in paths}
    quarantine.move_in(lived, place, paths)
    quarantine.move_in(lived, place, paths)  # again does no harm
    assert not any(path.exists() for path in paths)
    assert quarantine.waiting(lived) == {}
    assert quarantine.places(lived) == [place]
    assert quarantine.find(lived, origin(lived, paths[0]))[0].read_bytes() == contents[0]
    assert len(quarantine.move_out(lived, place)) == 2
    assert [path.read_bytes() for path in paths] == contents


def origin(repository: Repository, path: Path) -> str:
    return quarantine.origin_of(repository, path)


def test_what_is_there_already_stays(lived: Repository, paths: list[Path]) -> None:
    place = quarantine.begin(lived, paths, "gc")
    quarantine.move_in(lived, place, paths)
    paths[0].write_bytes(b"newer")
    quarantine.move_out(lived, place)
    assert paths[0].read_bytes() == b"newer"
    assert paths[1].exists()


def test_a_reference_is_gone_for_sure_before_its_commit(
    lived: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut in between it would name nothing; on the way back it is the last."""
    references = sorted((lived.files_git / "refs" / "versions").iterdir())
    objects = sorted((lived.files_git / "objects").glob("??/*"))
    assert references
    assert objects
    place = quarantine.begin(lived, [*objects, *references], "gc")
    moves: list[list[str]] = []
    move_all = durable.move_all

    def watched(pairs: list[tuple[Path, Path]]) -> None:
        moves.append([source.parent.name for source, _ in pairs])
        move_all(pairs)

    monkeypatch.setattr(durable, "move_all", watched)
    quarantine.move_in(lived, place, [*objects, *references])
    quarantine.move_out(lived, place)
    # Whatever the calls move is durable when they return.
    assert [set(move) == {"versions"} for move in moves] == [True, False, False, True]
    assert all("versions" not in move for move in moves[1:3])
    assert all(path.exists() for path in (*objects, *references))


def test_two_of_one_moment(lived: Repository, paths: list[Path]) -> None:
    names = {quarantine.begin(lived, paths, "gc").id for _ in range(3)}
    assert len(names) == 3
    assert all(quarantine.named(lived, name).bytes for name in names)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"objects": 3}', b'{"objects": [{"path": 1}]}'])
def test_a_list_that_cannot_be_read(lived: Repository, paths: list[Path], content: bytes) -> None:
    """The folder counts by its own time, and by what lies in it."""
    place = quarantine.begin(lived, paths, "gc")
    quarantine.move_in(lived, place, paths)
    (place.path / quarantine.LIST).write_bytes(content)
    found = quarantine.places(lived)[0]
    assert (len(found.objects), found.id) == (2, place.id)
    assert len(quarantine.move_out(lived, found)) == 2


def test_a_kill_before_the_list_is_no_fault(lived: Repository, paths: list[Path]) -> None:
    """Nothing has moved yet; the same folder with an object in it has lost its list."""
    place = quarantine.begin(lived, paths, "gc")
    (place.path / quarantine.LIST).unlink()
    assert small_files.faults(lived) == []
    quarantine.move_in(lived, place, paths)
    assert [wrong.kind for wrong in small_files.faults(lived)] == ["quarantine"]


@pytest.mark.parametrize("name", ["/etc/passwd", "../outside", "packs/../../x", "", "a//b"])
def test_a_list_that_leads_outside(lived: Repository, paths: list[Path], name: str) -> None:
    place = quarantine.begin(lived, paths, "gc")
    text = (place.path / quarantine.LIST).read_text()
    (place.path / quarantine.LIST).write_text(text.replace(origin(lived, paths[0]), name))
    assert quarantine.places(lived)[0].objects == ()


def test_discard(lived: Repository, paths: list[Path]) -> None:
    place = quarantine.begin(lived, paths, "gc")
    quarantine.move_in(lived, place, paths)
    quarantine.discard(place)
    assert not place.path.exists()
    with pytest.raises(NotFound):
        quarantine.named(lived, place.id)


def test_drop_keeps_what_holds_something(lived: Repository, paths: list[Path]) -> None:
    empty = quarantine.begin(lived, paths, "gc")
    quarantine.drop(empty)
    assert not empty.path.exists()
    full = quarantine.begin(lived, paths, "gc")
    quarantine.move_in(lived, full, paths)
    quarantine.drop(full)
    assert full.path.exists()
