"""Folders of event files: new points once, whatever the pieces, damage, or a kill between."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dlv.curves.ingest as ingest
from dlv.curves.store import CurveStore
from dlv.errors import NotFound
from dlv.metadata import curve_writing
from tests import event_bytes

LOG = "events.out.tfevents.1.host"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CurveStore]:
    with CurveStore.open(tmp_path / "live.db") as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "logs"
    made.mkdir()
    return made


def put(folder: Path, run: str, data: bytes, name: str = LOG) -> Path:
    """As a writer does: a file that is there grows or is overwritten in place."""
    path = folder / run / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def steps(store: CurveStore, tag: str = "loss", run: str = ".") -> list[int]:
    """The live steps of a scalar; values have to tell the same."""
    experiment = store.experiments()[0][0]
    found = store.series(experiment, runs=[run], tags=[tag])
    if not found:
        return []
    points = store.scalars(found[0].id)
    said = struct.unpack(f"<{points.n}q", points.steps)
    assert struct.unpack(f"<{points.n}d", points.values) == tuple(step * 0.5 for step in said)
    assert found[0].n == points.n
    return list(said)


def everything(store: CurveStore) -> list[object]:
    """All that can be asked of the store, without its ids."""
    found: list[object] = []
    for experiment, _ in store.experiments():
        found += [row[1:] for row in store.runs(experiment)]
        for row in store.series(experiment):
            found.append(row[1:])
            if row.data_class == 1:
                found.append(store.scalars(row.id))
            elif row.data_class == 2:
                found.append(list(store.tensors(row.id)))
            else:
                places = [(i, j) for i in range(row.n) for j in range(row.max_length)]
                found.append([list(store.blob(row.id, i, j)) for i, j in places])
    return found


def test_a_run_is_a_folder(store: CurveStore, folder: Path) -> None:
    put(folder, "", event_bytes.version() + event_bytes.scalars("loss", range(3)))
    put(folder, "a/b", event_bytes.version() + event_bytes.scalars("loss", range(5)))
    put(folder, "a", b"no log", "notes.txt")
    put(folder, "empty", b"")
    done = ingest.scan(store, folder)
    assert (done.runs, done.files, done.points) == ([".", "a/b", "empty"], 3, 8)
    ((experiment, name),) = store.experiments()
    assert name == str(folder)
    assert [(row.name, row.start_time) for row in store.runs(experiment)] == [
        (".", 100.0),
        ("a/b", 100.0),
        ("empty", None),
    ]
    assert steps(store) == [0, 1, 2]
    assert steps(store, run="a/b") == [0, 1, 2, 3, 4]


def test_what_has_not_changed_is_looked_at_only(
    store: CurveStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "a", event_bytes.scalars("loss", range(3)))
    put(folder, "b", event_bytes.scalars("loss", range(3)) + b"\x05\x00")
    grown = put(folder, "c", event_bytes.scalars("loss", range(3)))
    ingest.scan(store, folder)
    before, opened = everything(store), list[str]()
    real = os.open

    def watched(path: str, *rest: int, **named: int) -> int:
        opened.append(os.fspath(path))
        return real(path, *rest, **named)

    def reading(path: str, mode: str = "r", **named: object) -> object:
        opened.append(os.fspath(path))
        return io_open(path, mode, **named)  # type: ignore[call-overload]

    io_open = open
    monkeypatch.setattr("builtins.open", reading)
    monkeypatch.setattr(os, "open", watched)
    done = ingest.scan(store, folder)
    assert (done.files, done.read, done.bytes) == (3, 0, 0)
    assert everything(store) == before
    assert not [path for path in opened if "tfevents" in path]
    grown.write_bytes(grown.read_bytes() + event_bytes.scalars("loss", [7]))
    opened.clear()
    assert ingest.scan(store, folder).points == 1
    assert {path for path in opened if "tfevents" in path} == {str(grown)}


WHOLE = b"".join(
    (
        *(
            event_bytes.version(),
            event_bytes.scalars("loss", range(12)),
            event_bytes.image("img", 1, b"png"),
        ),
        *(
            event_bytes.scalars("acc", range(4)),
            event_bytes.text("note", 3, "three"),
            event_bytes.start(150.0, 9),
        ),
        *(
            event_bytes.scalars("loss", range(9, 15)),
            event_bytes.image("img", 9, b"png"),
            event_bytes.start(151.0, 2),
        ),
        *(event_bytes.scalars("acc", range(2, 6)), event_bytes.text("note", 9, "nine")),
    )
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.integers(0, len(WHOLE)), max_size=6))
def test_a_log_that_grows(tmp_path: Path, cuts: list[int]) -> None:
    """Wherever it was cut when it was looked at, the end is that of one reading."""
    shutil.rmtree(tmp_path / "grow", ignore_errors=True)
    (tmp_path / "grow").mkdir()
    at_once, growing = tmp_path / "grow" / "once", tmp_path / "grow" / "growing"
    with (
        CurveStore.open(tmp_path / "grow" / "1.db") as one,
        CurveStore.open(tmp_path / "grow" / "2.db") as two,
    ):
        put(at_once, "r", WHOLE)
        ingest.scan(one, at_once)
        points = 0
        for cut in sorted({*cuts, len(WHOLE)}):
            put(growing, "r", WHOLE[:cut])
            points += ingest.scan(two, growing).points
        assert everything(two) == everything(one)
        assert points == 12 + 4 + 6 + 4 + 2 + 2


def test_marked_restarts_hide_what_came_before(store: CurveStore, folder: Path) -> None:
    put(folder, "", WHOLE)
    ingest.scan(store, folder)
    assert steps(store) == [0, 1]
    assert steps(store, "acc") == [0, 1, 2, 3, 4, 5]
    told = {row.tag: row for row in store.series(store.experiments()[0][0])}
    assert (told["loss"].max_step, told["loss"].last, told["loss"].max) == (1, 0.5, 0.5)
    assert (told["img"].n, told["note"].n) == (1, 1)


def test_files_of_a_run_follow_one_another(store: CurveStore, folder: Path) -> None:
    second = (
        event_bytes.version()
        + event_bytes.start(200.0, 3)
        + event_bytes.scalars("loss", range(3, 6))
    )
    put(folder, "", second, "events.out.tfevents.2.host")
    put(
        folder,
        "",
        event_bytes.version() + event_bytes.start(100.0, 0) + event_bytes.scalars("loss", range(5)),
    )
    ingest.scan(store, folder)
    assert steps(store) == [0, 1, 2, 3, 4, 5]


def replaced_in_place(path: Path) -> None:
    path.write_bytes(event_bytes.version() + event_bytes.scalars("loss", [5, 6, 7]))


def shrunken(path: Path) -> None:
    path.write_bytes(event_bytes.version() + event_bytes.scalars("loss", [5, 6]))


def another_file(path: Path) -> None:
    data = path.read_bytes() + event_bytes.scalars("loss", [7])
    path.rename(path.with_name("old"))
    path.write_bytes(data)


def begun_anew(path: Path) -> None:
    path.write_bytes(event_bytes.version(55.0) + event_bytes.scalars("loss", range(9)))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (replaced_in_place, [5, 6, 7]),
        (shrunken, [5, 6]),
        (another_file, [0, 1, 2, 7]),
        (begun_anew, list(range(9))),
    ],
)
def test_a_file_that_is_another_now(
    store: CurveStore, folder: Path, change: object, expected: list[int]
) -> None:
    path = put(folder, "", event_bytes.version() + event_bytes.scalars("loss", range(3)))
    put(folder, "", event_bytes.scalars("loss", [50]), "tfevents.2")
    put(folder, "other", event_bytes.scalars("loss", range(2)))
    os.utime(path, ns=(1, 1))
    ingest.scan(store, folder)
    assert steps(store) == [0, 1, 2, 50]
    change(path)  # type: ignore[operator]
    for _ in range(2):
        ingest.scan(store, folder)
        assert steps(store) == [*expected, 50]
        assert steps(store, run="other") == [0, 1]


def test_what_is_gone_goes(store: CurveStore, folder: Path) -> None:
    put(folder, "a", event_bytes.scalars("loss", [1]))
    put(folder, "a", event_bytes.scalars("loss", [2]), "tfevents.2").rename(
        folder / "kept.tfevents"
    )
    put(folder, "b", event_bytes.scalars("loss", [3]))
    ingest.scan(store, folder)
    shutil.rmtree(folder / "b")
    os.unlink(folder / "kept.tfevents")
    ingest.scan(store, folder)
    assert [row.name for row in store.runs(store.experiments()[0][0])] == ["a"]
    assert steps(store, run="a") == [1]


def test_damage_keeps_what_came_before(store: CurveStore, folder: Path) -> None:
    good = event_bytes.version() + event_bytes.scalars("loss", range(4))
    broken = bytearray(event_bytes.scalars("loss", range(4, 9)))
    broken[40] ^= 1
    bad = put(folder, "a", good + broken)
    put(folder, "b", good)
    garbage = put(folder, "c", b"not an event file at all, only its name says so")
    for _ in range(2):  # the second look reads nothing, but says it again
        done = ingest.scan(store, folder)
        assert {path for path, _ in done.remarks} == {str(bad), str(garbage)}
        assert str(len(good)) in dict(done.remarks)[str(bad)]
        assert steps(store, run="a") == steps(store, run="b") == [0, 1, 2, 3]
    assert done.read == 0
    bad.write_bytes(good + event_bytes.scalars("loss", range(4, 9)))
    os.utime(bad, ns=(5, 5))
    ingest.scan(store, folder)
    assert steps(store, run="a") == list(range(9))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(1, 255)), max_size=3),
    st.integers(0, len(WHOLE)),
    st.binary(max_size=40),
)
def test_whatever_is_in_a_file_the_others_are_read(
    tmp_path: Path, flips: list[tuple[int, int]], cut: int, behind: bytes
) -> None:
    shutil.rmtree(tmp_path / "any", ignore_errors=True)
    data = bytearray(WHOLE)
    for at, flipped in flips:
        data[at] ^= flipped
    put(tmp_path / "any", "a", bytes(data[:cut]) + behind)
    put(tmp_path / "any", "b", event_bytes.scalars("loss", range(5)))
    with CurveStore.open(tmp_path / "any.db") as store:
        for _ in range(2):
            done = ingest.scan(store, tmp_path / "any", experiment="x")
        assert steps(store, run="b") == [0, 1, 2, 3, 4]
        first = min((at for at, _ in flips), default=cut)
        assert {path for path, _ in done.remarks} <= {str(tmp_path / "any" / "a" / LOG)}
        # All records before the first byte that is another one are there.
        with CurveStore.open(tmp_path / "prefix.db") as other:
            put(tmp_path / "prefix", "a", WHOLE[: min(first, cut)])
            before = ingest.scan(other, tmp_path / "prefix", experiment="x")
            assert steps(store, "acc", "a")[: len(steps(other, "acc", "a"))] == steps(
                other, "acc", "a"
            )
            assert before.remarks == []


def test_a_tag_that_is_too_long_is_left_out(store: CurveStore, folder: Path) -> None:
    long = "x" * 70_000
    path = put(folder, "", event_bytes.scalars("loss", [1]) + event_bytes.scalars(long, [1, 2]))
    done = ingest.scan(store, folder)
    assert [name for name, _ in done.remarks] == [str(path)]
    assert steps(store) == [1]
    assert steps(store, long) == []


def test_a_tail_that_is_cut_is_no_damage(store: CurveStore, folder: Path) -> None:
    data = event_bytes.version() + event_bytes.scalars("loss", range(4))
    path = put(folder, "", data[:-3])
    assert ingest.scan(store, folder).remarks == []
    assert steps(store) == [0, 1, 2]
    path.write_bytes(data)
    assert ingest.scan(store, folder).points == 1
    assert steps(store) == [0, 1, 2, 3]


def test_links_are_followed_but_not_round(store: CurveStore, folder: Path, tmp_path: Path) -> None:
    put(tmp_path, "elsewhere", event_bytes.scalars("loss", [1]))
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    (folder / "round").symlink_to(folder)
    (folder / "nowhere.tfevents").symlink_to(tmp_path / "nowhere")
    assert ingest.scan(store, folder).runs == ["link"]


def test_names_of_any_bytes(store: CurveStore, folder: Path) -> None:
    os.makedirs(os.fsencode(folder) + b"/r\xff'\n")
    with open(os.fsencode(folder) + b"/r\xff'\n/x.tfevents", "wb") as file:
        file.write(event_bytes.scalars("loss", [1]))
    for _ in range(2):
        assert ingest.scan(store, folder).runs == ["r\\xff'\n"]
    assert steps(store, run="r\\xff'\n") == [1]


def test_two_experiments_do_not_meet(store: CurveStore, folder: Path) -> None:
    put(folder, "a/r", event_bytes.scalars("loss", [1]))
    put(folder, "b/r", event_bytes.scalars("loss", [2]))
    ingest.scan(store, folder / "a")
    ingest.scan(store, folder / "b")
    ingest.scan(store, folder / "a")
    found = {name: [row.n for row in store.series(key)] for key, name in store.experiments()}
    assert found == {str(folder / "a"): [1], str(folder / "b"): [1]}


def test_folders_that_are_no_more_are_forgotten(store: CurveStore, folder: Path) -> None:
    put(folder, "a/r", event_bytes.scalars("loss", [1]))
    put(folder, "b/r", event_bytes.scalars("loss", [2]))
    for name in "ab":
        ingest.scan(store, folder / name)
    with store.database.atomic():
        curve_writing.experiment(store.database, "")  # that of committed versions
    shutil.rmtree(folder / "a")
    ingest.scan(store, folder / "b")
    assert [name for _, name in store.experiments()] == ["", str(folder / "b")]
    assert store.database.value("SELECT count(*) FROM run") == 1


def test_a_folder_that_is_not_there(store: CurveStore, folder: Path) -> None:
    with pytest.raises(NotFound, match="no such directory:"):
        ingest.scan(store, folder / "nothing")


def test_previews_are_kept_of_long_series(store: CurveStore, folder: Path) -> None:
    put(
        folder,
        "",
        event_bytes.scalars("loss", range(1500)) + event_bytes.scalars("acc", range(900)),
    )
    ingest.scan(store, folder)
    told = {row.tag: row.id for row in store.series(store.experiments()[0][0])}
    found = store.preview(told["loss"])
    assert found is not None
    assert found.n == 1000
    assert store.preview(told["acc"]) is None
