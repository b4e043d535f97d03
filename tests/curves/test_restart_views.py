"""What each policy of restarts shows of a run, beside a plain loop over all that was written."""

from __future__ import annotations

import itertools
import shutil
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import dlv.api as api
import dlv.curves.frozen as frozen_curves
import dlv.curves.ingest as ingest
import dlv.versions.commit as committing
from dlv.curves.restart_views import RestartView, advice, under
from dlv.curves.store import LIVE, CurveStore
from dlv.errors import UsageError
from dlv.events.formats import series as frozen_series
from dlv.events.provider.provider import Provider
from dlv.events.provider.sampling import Choice
from dlv.events.provider.store import SeriesRow
from dlv.metadata import versions
from dlv.repository.handle import Repository
from dlv.versions.commit import Request
from dlv.weights.store import MatrixStore
from tests import event_bytes
from tests.events import event_files

LOG = "events.out.tfevents.1.host"
POLICIES = ("marked", "preempt", "keep")
ALL = Choice(points=None)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CurveStore]:
    with CurveStore.open(tmp_path / LIVE) as opened:
        yield opened


def put(folder: Path, data: bytes, run: str = "") -> Path:
    path = folder / run / LOG
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def points(store: CurveStore, row: SeriesRow) -> list[tuple[int, Any]]:
    if row.data_class == 1:
        columns = store.scalars(row.id)
        steps = struct.unpack(f"<{columns.n}q", columns.steps)
        return list(zip(steps, struct.unpack(f"<{columns.n}d", columns.values), strict=True))
    if row.data_class == 2:
        return [(tensor.step, tensor.data) for tensor in store.tensors(row.id)]
    found = []
    for ordinal, sequence in enumerate(store.blob_sequences(row.id)):
        blobs = range(len(sequence.blobs))
        read = tuple(b"".join(store.blob(row.id, ordinal, index)) for index in blobs)
        found.append((sequence.step, read))
    return found


def shown(store: CurveStore, policy: str) -> dict[str, list[tuple[int, Any]]]:
    """Every point, and that the figures of each series are of just these."""
    view = under(store, policy)
    found = {}
    for row in view.series(store.experiments()[0][0]):
        live = found[row.tag] = points(view, row)
        assert row.n == len(live)
        assert row.max_step == max((step for step, _ in live), default=None)
        if row.data_class == 1:
            values = [value for _, value in live]
            assert (row.last, row.min, row.max) == (
                *(values[-1:] or [None]),
                min(values, default=None),
                max(values, default=None),
            )
            told = view.scalar_chunks(row.id)
            assert sum(chunk.n for chunk in told) == row.n
            assert all(chunk.vmin == values[chunk.imin or 0] for chunk in told)
        elif row.data_class == 3:
            most = max((len(blobs) for _, blobs in live), default=0)
            assert row.max_length == most or (policy == "marked" and row.max_length > most)
    return found


MADE = st.lists(
    st.tuples(st.sampled_from(["scalar", "scalar", "text", "image", "start"]), st.integers(0, 6)),
    max_size=14,
)


def data(made: list[tuple[str, int]]) -> bytes:
    parts = [event_bytes.version()]
    for number, (kind, step) in enumerate(made):
        if kind == "scalar":
            parts.append(event_bytes.scalar("loss", step, number / 4, 100.0 + number))
        elif kind == "text":
            parts.append(event_bytes.text("note", step, str(number)))
        elif kind == "image":
            parts.append(event_bytes.image("img", step, str(number).encode()))
        else:
            parts.append(event_bytes.start(100.0 + number, step))
    return b"".join(parts)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(made=MADE, cut=st.integers(0, 14))
@example([("scalar", 2), ("start", 0), ("start", 1), ("scalar", 1), ("scalar", 0)], 0)
def test_each_policy_shows_what_a_loop_shows(
    tmp_path: Path, made: list[tuple[str, int]], cut: int
) -> None:
    folder = tmp_path / "made"
    shutil.rmtree(folder, ignore_errors=True)
    with CurveStore.open(tmp_path / LIVE) as store:
        folder.mkdir()
        for part in (made[:cut], made):  # as the file grows
            path = put(folder, data(part))
            ingest.scan(store, folder, experiment="e")
        for policy in POLICIES:
            expected = event_files.read_run([path], policy)
            found = shown(store, policy)
            assert {tag: [step for step, _ in live] for tag, live in found.items()} == {
                tag: [point[0] for point in each.points] for tag, each in expected.series.items()
            }
        steps = {tag: [step for step, _ in live] for tag, live in shown(store, "marked").items()}
        back = any(b < a for live in steps.values() for a, b in itertools.pairwise(live))
        if back:
            assert advice(store, "e") is not None
        shutil.rmtree(folder)
        ingest.scan(store, folder.parent, experiment="e")


SILENT = (
    event_bytes.version()
    + event_bytes.scalars("loss", range(100))
    + event_bytes.scalars("loss", range(50, 120))
)
MARKED = (
    event_bytes.version()
    + event_bytes.start(100.0, 0)
    + event_bytes.scalars("loss", range(100))
    + event_bytes.start(200.0, 50)
    + event_bytes.scalars("loss", range(50, 120))
)


def test_the_figures_of_the_design(store: CurveStore, tmp_path: Path) -> None:
    put(tmp_path / "runs", SILENT, "silent")
    put(tmp_path / "runs", MARKED, "marked")
    ingest.scan(store, tmp_path / "runs", experiment="e")
    counts = {
        policy: {row.run: row.n for row in under(store, policy).series(store.experiments()[0][0])}
        for policy in POLICIES
    }
    assert counts == {
        "marked": {"silent": 170, "marked": 120},
        "preempt": {"silent": 120, "marked": 120},
        "keep": {"silent": 170, "marked": 170},
    }


def test_samples_are_drawn_over_live_points(store: CurveStore, tmp_path: Path) -> None:
    """As if what is hidden had never been written; the kept sample is of other points."""
    straight = event_bytes.version() + event_bytes.scalars("loss", range(3000))
    restarted = (
        event_bytes.version()
        + event_bytes.scalars("loss", range(2500))
        + event_bytes.scalars("loss", range(100, 3000))
    )
    put(tmp_path / "runs", straight, "straight")
    put(tmp_path / "runs", restarted, "restarted")
    ingest.scan(store, tmp_path / "runs", experiment="")
    for sampling in ("sampled", "linear", "envelope", "step"):
        asked = Choice(points=1000, sampling=sampling)
        found = Provider(under(store, "preempt")).read_scalars(choice=asked)
        one, other = found["straight"]["loss"], found["restarted"]["loss"]
        assert np.array_equal(one.steps, other.steps)
        assert np.array_equal(one.values, other.values)
    kept = Provider(under(store, "keep")).read_scalars(choice=Choice(points=1000))
    as_marked = Provider(store).read_scalars(choice=Choice(points=1000))
    assert np.array_equal(kept["restarted"]["loss"].steps, as_marked["restarted"]["loss"].steps)


def test_a_series_without_restarts_is_not_read(
    store: CurveStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "runs", SILENT, "silent")
    put(tmp_path / "runs", event_bytes.version() + event_bytes.scalars("loss", range(50)), "plain")
    ingest.scan(store, tmp_path / "runs", experiment="")
    looked: list[int] = []
    real = CurveStore.written

    def watched(self: CurveStore, series: int, *rest: Any) -> Any:
        looked.append(series)
        return real(self, series, *rest)

    monkeypatch.setattr(CurveStore, "written", watched)
    view = RestartView(store.database, "preempt")
    rows = {row.run: row for row in view.series(store.experiments()[0][0])}
    assert looked == [rows["silent"].id]
    view.series(store.experiments()[0][0])
    assert len(looked) == 1, "once is enough"
    assert view.preview(rows["silent"].id) is None


def test_a_run_that_grows_is_looked_at_anew(store: CurveStore, tmp_path: Path) -> None:
    path = put(tmp_path / "runs", SILENT)
    ingest.scan(store, tmp_path / "runs", experiment="")
    view = RestartView(store.database, "preempt")
    (row,) = view.series(store.experiments()[0][0])
    assert row.n == 120
    path.write_bytes(SILENT + event_bytes.scalars("loss", range(10, 12)))
    ingest.scan(store, tmp_path / "runs", experiment="")
    (row,) = view.series(store.experiments()[0][0])
    assert [step for step, _ in points(view, row)] == list(range(12))
    assert (row.n, row.max_step) == (12, 11)


def test_what_is_said_of_steps_that_go_back(store: CurveStore, tmp_path: Path) -> None:
    put(tmp_path / "runs", SILENT, "a")
    put(
        tmp_path / "runs",
        event_bytes.version() + event_bytes.scalars("loss", [1, 1, 2]),
        "repeated",
    )
    put(tmp_path / "runs", MARKED, "marked")
    ingest.scan(store, tmp_path / "runs", experiment="e")
    said = advice(store, "e")
    assert said is not None
    assert said.startswith("steps of `a` go back to 50 without a mark of a restart: old and new")
    assert advice(store, "e", lambda run: run != "a") is None
    put(tmp_path / "runs", SILENT, "b")
    ingest.scan(store, tmp_path / "runs", experiment="e")
    assert "as do those of 1 other run: old" in (advice(store, "e") or "")
    for run in "ab":  # and then a restart is marked, before all of it
        put(tmp_path / "runs", SILENT + event_bytes.start(1.0, 0) + event_bytes.start(2.0, 0), run)
    ingest.scan(store, tmp_path / "runs", experiment="e")
    assert advice(store, "e") is None
    assert advice(store, "another") is None


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    """`net@1` with both runs."""
    put(tmp_path / "runs", SILENT, "silent")
    put(tmp_path / "runs", MARKED, "marked")
    (tmp_path / "models").mkdir()
    with Repository.init(tmp_path / "models")[0] as made:
        events = ingest.event_logs_of_folder(made.path, tmp_path / "runs")
        assert [text[:30] for text in events.remarks] == ["steps of `silent` go back to 5"]
        request = Request("runs", "Ada <ada@example.org>", "net", events=[events])
        committing.commit(made, request)
        events.close()
        yield made


def test_a_version_keeps_all_points(repository: Repository, tmp_path: Path) -> None:
    (version,) = versions.all_versions(repository.database)
    with CurveStore.open(tmp_path / "other.db") as store:
        frozen_curves.fill(repository, store, [version])
        counts = {
            policy: [row.n for row in under(store, policy).series(store.experiments()[0][0])]
            for policy in POLICIES
        }
    assert counts == {"marked": [120, 170], "preempt": [120, 120], "keep": [170, 170]}


def test_the_rows_that_only_help_to_see_are_not_frozen(repository: Repository) -> None:
    with CurveStore.open(repository.path / LIVE) as store:
        kinds = {kind for (kind,) in store.database.rows("SELECT policy FROM purge")}
    assert kinds == {"marked", "preempt", "repeat"}
    manifest = repository.manifest(versions.all_versions(repository.database)[0].id)
    with closing(MatrixStore.of(repository)) as objects:
        found = [
            frozen_series.decode_head(bytes(objects.object("series", s.hash)))
            for s in manifest.series
        ]
    assert [[policy for policy, _, _ in head.purges] for head in found] == [["marked"], []]


@pytest.mark.parametrize(
    ("said", "expected"),
    [(None, [120, 170]), ("marked", [120, 170]), ("preempt", [120, 120]), ("keep", [170, 170])],
)
def test_in_a_program(repository: Repository, said: str | None, expected: list[int]) -> None:
    with api.open(repository.root) as repo, repo.curves("net@1", restarts=said) as curves:
        found = curves.scalars("loss")
        assert [len(found[f"net@1/{run}"]["loss"]) for run in ("marked", "silent")] == expected
        with repo["net@1"].curves(said) as again:
            assert [len(again.scalars()[run]["loss"]) for run in found] == expected
        names = ("marked/loss", "silent/loss")
        assert [len(repo["net@1"].metric(name, said or "marked")) for name in names] == expected


def test_of_a_folder_in_a_program(repository: Repository, tmp_path: Path) -> None:
    with (
        api.open(repository.root) as repo,
        repo.curves(folder=tmp_path / "runs", restarts="preempt") as curves,
    ):
        assert {run: len(tags["loss"]) for run, tags in curves.scalars().items()} == {
            "marked": 120,
            "silent": 120,
        }


def test_the_setting_counts(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLV_CURVES_RESTARTS", "keep")
    with api.open(repository.root) as repo:
        with repo.curves("net@1") as curves:
            assert len(curves.scalars()["net@1/marked"]["loss"]) == 170
        with repo.curves("net@1", restarts="marked") as curves:
            assert len(curves.scalars()["net@1/marked"]["loss"]) == 120


def test_an_unknown_policy(repository: Repository) -> None:
    with api.open(repository.root) as repo:
        for ask in (repo.curves, repo["net@1"].curves):
            with pytest.raises(UsageError, match="must be marked or preempt or keep"):
                ask(restarts="premept")
