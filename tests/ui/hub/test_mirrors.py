"""Mirrors of repositories: retired versions, failures, the bound on the disk, corrupt ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlv.hub.server.access import Place
from dlv.metadata import versions
from dlv.ui.hub.mirrors import Mirrors
from tests.hub.server.filling import Publisher
from tests.ui.hub.hubs import Keeper


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    keeper = Keeper(tmp_path)
    yield keeper
    keeper.close()


@pytest.fixture
def mirrors(keeper: Keeper) -> Iterator[Mirrors]:
    mirrors = Mirrors(keeper.hub, patience=60)
    yield mirrors
    mirrors.close()


def shown(mirrors: Mirrors, place: Place) -> list[str]:
    with mirrors.open(place) as mirror:
        found = versions.all_versions(mirror.repository.database)
        return sorted(version.label for version in found)


def test_an_empty_repository_has_an_empty_mirror(keeper: Keeper, mirrors: Mirrors) -> None:
    assert shown(mirrors, Publisher(keeper.hub).place) == []


def test_new_and_retired_versions_are_noticed(keeper: Keeper, mirrors: Mirrors) -> None:
    publisher = Publisher(keeper.hub)
    first = publisher.publish("net")
    publisher.publish("other")
    assert shown(mirrors, publisher.place) == ["net@1", "other@1"]
    publisher.publish("net")
    assert shown(mirrors, publisher.place) == ["net@1", "net@2", "other@1"]
    with mirrors.open(publisher.place) as held:  # it is replaced while it is read
        publisher.retire(first)
        assert shown(mirrors, publisher.place) == ["net@2", "other@1"]
        assert len(versions.all_versions(held.repository.database)) == 3


def test_an_unchanged_repository_is_not_read_again(
    keeper: Keeper, mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = Publisher(keeper.hub)
    publisher.publish("net")
    shown(mirrors, publisher.place)

    def fail(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(mirrors, "_refresh", fail)
    assert shown(mirrors, publisher.place) == ["net@1"]


def test_a_corrupt_or_deleted_mirror_is_made_again(keeper: Keeper, mirrors: Mirrors) -> None:
    publisher = Publisher(keeper.hub)
    publisher.publish("net")
    shown(mirrors, publisher.place)
    folder = keeper.hub.settings.data / "mirrors" / publisher.place.uuid
    shutil.rmtree(folder)
    assert shown(mirrors, publisher.place) == ["net@1"]
    for name in ("dlv.db", "format.json"):
        (state,) = [path for path in folder.iterdir() if path.name.isdigit()]
        (state / ".dlv" / name).write_bytes(b"x" * 5000)
        publisher.publish("net", message=name)
        assert len(shown(mirrors, publisher.place)) >= 2
    (folder / "state.json").write_text("{")
    assert len(shown(mirrors, publisher.place)) == 3


def test_a_model_that_cannot_be_pulled_does_not_hide_the_others(
    keeper: Keeper, mirrors: Mirrors
) -> None:
    publisher = Publisher(keeper.hub)
    publisher.publish("good")
    bad = publisher.publish("bad")
    objects = Path(keeper.hub.settings.store) / publisher.place.uuid
    path = objects / "manifests" / bad.manifest[:2] / f"{bad.manifest}.json"
    path.write_bytes(b"{}")
    with mirrors.open(publisher.place) as mirror:
        assert list(mirror.state.faults) == ["bad"]
        found = versions.all_versions(mirror.repository.database)
        assert [version.label for version in found] == ["good@1"]


def test_the_mirrors_that_were_read_longest_ago_are_deleted(keeper: Keeper) -> None:
    publishers = [Publisher(keeper.hub, "acme", f"repo{n}") for n in range(3)]
    mirrors = Mirrors(keeper.hub, most_bytes=1, patience=60)
    try:
        for publisher in publishers:
            publisher.publish("net")
            shown(mirrors, publisher.place)
        folder = keeper.hub.settings.data / "mirrors"
        with mirrors.open(publishers[0].place) as held:
            mirrors.tidy()
            assert [path.name for path in folder.iterdir() if path.name != "locks"] == [
                publishers[0].place.uuid  # it is being read
            ]
            assert versions.all_versions(held.repository.database)
        assert shown(mirrors, publishers[1].place) == ["net@1"]
    finally:
        mirrors.close()


def test_nothing_is_written_to_the_truth(keeper: Keeper, mirrors: Mirrors) -> None:
    publisher = Publisher(keeper.hub)
    publisher.publish("net")
    objects = Path(keeper.hub.settings.store)
    before = {path: path.stat().st_mtime_ns for path in objects.rglob("*")}
    shown(mirrors, publisher.place)
    assert {path: path.stat().st_mtime_ns for path in objects.rglob("*")} == before
