"""`list` and `log` below the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import dlv.canonical as canonical
import dlv.repository.revisions as revisions
import dlv.versions.commit as committing
import dlv.versions.remove as remove
from dlv.errors import NotFound, UsageError
from dlv.repository.handle import Repository
from dlv.versions.history import Filter, list_versions, log, moment, names

Commit = Callable[..., str]
AUTHOR = "Ada <ada@example.org>"


@pytest.fixture
def repository(tmp_path: Path, commit_model: Commit) -> Iterator[Repository]:
    """lenet@1 .. 3 and wide@1 (from lenet@1), three days apart; accuracy rises, wide's is nan."""
    made, _ = Repository.init(tmp_path)
    weights = {"w": np.ones(3, np.float32)}
    ids: list[str] = []
    for number, (name, lr, log_text) in enumerate(
        [
            ("lenet", 0.1, "step,accuracy,loss\n1,0.5,2\n2,0.6,1\n"),
            ("lenet", 0.01, "step,accuracy,loss\n1,0.9,1\n2,0.8,3\n"),
            ("wide", 0.1, "step,accuracy,val/f1\n1,nan,0.5\n"),
            ("lenet", 0.1, "step,loss\n1,0.5\n"),
        ]
    ):
        day = canonical.moment_of(f"2026-06-{1 + 3 * number:02}T12:00:00.000000Z")
        canonical.fix_clock(day)
        if number == 2:
            with made.change("checkout") as change:
                change.set_head(ids[0])
        if number == 3:
            with made.change("checkout") as change:
                change.set_head(ids[1])
        files = {"log.csv": log_text}
        message = f"Message {number}\n\nMore of it"
        ids.append(
            commit_model(made, name, weights, files=files, parameters={"lr": lr}, message=message)
        )
    canonical.fix_clock(canonical.moment_of("2026-06-15T12:00:00.000000Z"))
    yield made
    canonical.fix_clock(None)
    made.close()


def listed(repository: Repository, **wanted: object) -> list[str]:
    found = list_versions(repository, Filter(**wanted))  # type: ignore[arg-type]
    return [entry.version.label for entry in found.entries]


ALL = ["lenet@3", "wide@1", "lenet@2", "lenet@1"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, ALL),
        ({"patterns": ["lenet"]}, ["lenet@3", "lenet@2", "lenet@1"]),
        ({"patterns": ["w*"]}, ["wide@1"]),
        ({"patterns": ["x*"]}, []),
        ({"patterns": ["w*", "l?net"]}, ALL),
        ({"name": "wide"}, ["wide@1"]),
        ({"patterns": ["lenet"], "name": "wide"}, []),
        ({"message": "message 2"}, ["wide@1"]),
        ({"message": "MORE"}, ALL),
        ({"last": 2}, ALL[:2]),
        ({"last": 0}, []),
        ({"since": "2026-06-07"}, ["lenet@3", "wide@1"]),
        ({"since": "2026-06-07T12:00:01"}, ["lenet@3"]),
        ({"since": "6d"}, ["lenet@3"]),
        ({"since": "2w"}, ALL),
        ({"since": "1h"}, []),
        ({"where": ["accuracy>0.5"]}, ["lenet@2", "lenet@1"]),
        ({"where": ["accuracy.max>=0.9"]}, ["lenet@2"]),
        ({"where": ["lr=0.1 and loss<=1"]}, ["lenet@3", "lenet@1"]),
        ({"where": ["lr=0.1", "loss<1"]}, ["lenet@3"]),
        ({"sort": "accuracy"}, ["lenet@2", "lenet@1", "wide@1", "lenet@3"]),
        ({"sort": "loss"}, ["lenet@3", "lenet@1", "lenet@2", "wide@1"]),
        ({"sort": "lr"}, ["lenet@2", "lenet@3", "wide@1", "lenet@1"]),
        ({"sort": "version"}, ["lenet@1", "lenet@2", "lenet@3", "wide@1"]),
        ({"sort": "created"}, ALL),
        ({"sort": "name", "last": 1}, ["lenet@3"]),
    ],
)
def test_filters(repository: Repository, wanted: dict[str, object], expected: list[str]) -> None:
    assert listed(repository, **wanted) == expected


def test_tags_and_removed_ones(repository: Repository) -> None:
    revisions.set_tag(repository, "good", "lenet@2", AUTHOR)
    assert listed(repository, tag="good") == listed(repository, tag="g*") == ["lenet@2"]
    with pytest.raises(NotFound) as caught:
        listed(repository, tag="god")
    assert (caught.value.did_you_mean, caught.value.why) == (["good"], "1 tag here")
    assert listed(repository, tag="b*") == []
    remove.remove(repository, ["wide@1"], AUTHOR)
    assert listed(repository) == ["lenet@3", "lenet@2", "lenet@1"]
    assert listed(repository, removed=True) == ALL
    found = list_versions(repository, Filter(removed=True))
    assert [entry.version.state for entry in found.entries] == ["live", "removed", "live", "live"]
    assert [(n.name, n.versions, n.latest.label) for n in names(found)] == [
        ("lenet", 3, "lenet@3"),
        ("wide", 1, "wide@1"),
    ]


def test_what_an_entry_holds(repository: Repository) -> None:
    found = list_versions(repository, Filter())
    newest, wide = found.entries[:2]
    assert (newest.head, wide.head) == (True, False)
    assert [(p.label, p.kind) for p in newest.parents] == [("lenet@2", "commit")]
    assert wide.parameters == {"lr": 0.1}
    assert set(wide.metrics) == {"accuracy", "val/f1"}
    assert found.usual == ["accuracy", "loss", "val/f1"]


def test_columns(repository: Repository) -> None:
    found = list_versions(repository, Filter(columns="version, loss.min,lr,,message"))
    assert [name for name, _ in found.columns] == ["version", "loss.min", "lr", "message"]
    assert [found.entries[2].value(key) for _, key in found.columns if key] == [1.0, 0.01]


@pytest.mark.parametrize(
    ("wanted", "kind", "meant"),
    [
        ({"patterns": ["lent"]}, NotFound, ["lenet"]),
        ({"name": "wid"}, NotFound, ["wide"]),
        ({"patterns": ["lenet@2"]}, UsageError, []),
        ({"where": ["acc>1"]}, NotFound, []),
        ({"where": ["accurac>1"]}, NotFound, ["accuracy"]),
        ({"sort": "creatd"}, NotFound, ["created"]),
        ({"columns": "version,mesage"}, NotFound, ["message"]),
        ({"since": "3 days"}, UsageError, []),
        ({"since": "99999999y"}, UsageError, []),
        ({"since": "999999y"}, UsageError, []),
    ],
)
def test_errors(
    repository: Repository, wanted: dict[str, object], kind: type[NotFound], meant: list[str]
) -> None:
    with pytest.raises(kind) as caught:
        listed(repository, **wanted)
    assert caught.value.did_you_mean == meant


def test_moments() -> None:
    canonical.fix_clock(canonical.moment_of("2026-06-15T12:00:00.000000Z"))
    try:
        assert moment("2d")[:19] == "2026-06-13T12:00:00"
        assert moment("36h")[:19] == "2026-06-14T00:00:00"
        assert moment("2026-06-01") == "2026-06-01T00:00:00.000000Z"
        assert moment("2026-06-01T12:00+02:00") == "2026-06-01T10:00:00.000000Z"
    finally:
        canonical.fix_clock(None)


def lines(repository: Repository, *arguments: object, **options: bool) -> list[str]:
    reference = arguments[0] if arguments else None
    assert reference is None or isinstance(reference, str)
    return [e.version.label for e in log(repository, reference, **options)[0]]


def test_log(repository: Repository) -> None:
    assert lines(repository) == ["lenet@3", "lenet@2", "lenet@1"]
    assert lines(repository, "wide") == ["wide@1", "lenet@1"]
    assert lines(repository, "HEAD~1") == ["lenet@2", "lenet@1"]
    assert lines(repository, everything=True) == ALL


def test_log_goes_through_all_parents(repository: Repository) -> None:
    request = committing.Request(
        "merged", AUTHOR, "lenet", parents=["lenet@3", "wide"], allow_empty=True
    )
    committing.commit(repository, request)
    assert lines(repository) == ["lenet@4", *ALL]


def test_log_of_what_was_removed(repository: Repository) -> None:
    remove.remove(repository, ["lenet@2", "wide"], AUTHOR)
    found, notes = log(repository, "lenet@2")
    assert [entry.version.label for entry in found] == ["lenet@2", "lenet@1"]
    assert "is removed;" in notes[0]
    # lenet@2 belongs to the line of lenet@3; nothing comes from wide@1.
    assert lines(repository, everything=True) == ["lenet@3", "lenet@2", "lenet@1"]


def test_children_come_first_whatever_the_clock_said(tmp_path: Path, commit_model: Commit) -> None:
    made, _ = Repository.init(tmp_path)
    for day in (5, 4, 6, 1):
        canonical.fix_clock(canonical.moment_of(f"2026-06-{day:02}T12:00:00.000000Z"))
        commit_model(made, "net", {"w": np.full(2, day, np.float32)})
    canonical.fix_clock(None)
    assert lines(made, "net@4") == ["net@4", "net@3", "net@2", "net@1"]
    assert lines(made, everything=True) == ["net@4", "net@3", "net@2", "net@1"]


def test_without_head(tmp_path: Path) -> None:
    made, _ = Repository.init(tmp_path)
    with pytest.raises(NotFound) as caught:
        log(made, None)
    assert "--all" in str(caught.value.hint)
    assert log(made, None, everything=True)[0] == []
    assert list_versions(made, Filter()).entries == []
