"""`metrics`: figures and points of series."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.curves.figures import CURVE, Curve, curves, step_range
from dlv.errors import NotFound, UsageError
from dlv.repository.handle import Repository

Commit = Callable[..., str]
STEPS = range(10, 510)
LOSS = {step: math.sin(step / 20) for step in STEPS} | {123: 50.0, 400: -50.0}
LOG = "step,loss,val/acc\n" + "".join(
    f"{step},{LOSS[step]!r},{step / 1000 if step % 100 == 0 else ''}\n" for step in STEPS
)


@pytest.fixture(scope="module")
def repository(
    tmp_path_factory: pytest.TempPathFactory, commit_model: Commit
) -> Iterator[Repository]:
    made, _ = Repository.init(tmp_path_factory.mktemp("curves"))
    commit_model(made, "net", {"w": np.ones(2, np.float32)}, files={"log.csv": LOG})
    short = {"log.csv": "step,loss\n1,2.5\n2,nan\n"}
    commit_model(made, "net", {"w": np.zeros(2, np.float32)}, files=short)
    yield made
    made.close()


def one(found: list[Curve], name: str) -> Curve:
    (curve,) = [curve for curve in found if curve.summary.name == name]
    return curve


def test_summaries(repository: Repository) -> None:
    found = curves(repository, ["net@1"]).curves
    loss = one(found, "loss").summary
    assert (loss.n, loss.last, loss.last_step) == (500, LOSS[509], 509)
    assert (loss.min, loss.min_step, loss.max, loss.max_step) == (-50.0, 400, 50.0, 123)
    assert one(found, "val/acc").summary.n == 5
    assert loss.n == len(LOSS)
    assert [curve.points for curve in found] == [None, None]
    assert [curve.course for curve in found] == [None, None]


def test_not_finite(repository: Repository) -> None:
    (curve,) = curves(repository, ["net@2"]).curves
    summary = curve.summary
    assert (summary.n, summary.nonfinite, str(summary.last), summary.min) == (2, 1, "nan", 2.5)


def test_points_of_a_series(repository: Repository) -> None:
    (curve,) = curves(repository, ["net@1"], series=["loss"]).curves
    assert curve.points is not None
    assert dict(zip(curve.points.steps, curve.points.values, strict=True)) == LOSS


@given(st.integers(0, 520), st.integers(0, 520))
def test_between_steps(repository: Repository, first: int, last: int) -> None:
    first, last = min(first, last), max(first, last)
    wanted = {step: value for step, value in LOSS.items() if first <= step <= last}
    found = curves(repository, ["net@1"], series=["loss"], steps=f"{first}:{last}").curves
    summary, points = found[0].summary, found[0].points
    assert points is not None
    assert dict(zip(points.steps, points.values, strict=True)) == wanted
    assert summary.n == len(wanted)
    assert summary.max == max(wanted.values(), default=None)
    assert summary.last_step == max(wanted, default=None)


def test_open_ranges(repository: Repository) -> None:
    for text, n in (("500:", 10), (":10", 1), (":", 500)):
        (curve,) = curves(repository, ["net@1"], series=["loss"], steps=text).curves
        assert curve.summary.n == n


@pytest.mark.parametrize("text", ["", "5", "a:b", "9:5", "1:2:3", "1.5:2"])
def test_ranges_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        step_range(text)


def test_negative_steps() -> None:
    assert step_range("-5:-1") == (-5, -1)


def test_a_course_keeps_the_peaks(repository: Repository) -> None:
    curve = one(curves(repository, ["net@1"], courses=True).curves, "loss")
    assert curve.course is not None
    assert len(curve.course) <= CURVE
    assert (min(curve.course), max(curve.course)) == (-50.0, 50.0)


def test_chosen_by_name_tag_or_pattern(repository: Repository) -> None:
    def names(*series: str) -> list[str]:
        found = curves(repository, ["net@1", "net@2"], series=series).curves
        return [f"{curve.version.label} {curve.summary.name}" for curve in found]

    assert names("loss") == ["net@1 loss", "net@2 loss"]
    assert names("val/*") == ["net@1 val/acc"]
    assert names("loss", "val/acc") == ["net@1 loss", "net@1 val/acc", "net@2 loss"]
    with pytest.raises(NotFound) as caught:
        names("los")
    assert caught.value.did_you_mean == ["loss"]
    with pytest.raises(NotFound):
        names("loss", "x*")


def test_a_version_named_twice_counts_once(repository: Repository) -> None:
    assert len(curves(repository, ["net@2", "HEAD"]).curves) == 1
