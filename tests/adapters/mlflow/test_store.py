"""Text values of MLflow as numbers, names of versions, and where artifacts may lie."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.adapters.mlflow.files import Points, locate, typed, version_name
from dlv.errors import NotFound, UsageError
from dlv.objects.manifest import check_name

RUN = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("0.1", 0.1),
        ("1e-08", 1e-08),
        ("1e+30", 1e30),
        ("-0.0", -0.0),
        ("True", True),
        ("False", False),
        ("None", None),
        (str(2**64 - 1), 2**64 - 1),
    ],
)
def test_what_python_would_print_so(text: str, value: object) -> None:
    found = typed(text)
    assert (found, type(found), str(found)) == (value, type(value), text)


@pytest.mark.parametrize(
    "text",
    [
        *("007", "+1", "1_000", "-0", "1e-4", "0.10", ".5", "5.", "1e400", "nan", "inf", "١"),
        *("true", "none", "", " 1", "1 ", "0x10", "[1, 2]", str(2**64), "9" * 5000, "1.0f"),
    ],
)
def test_other_texts_stay_texts(text: str) -> None:
    assert typed(text) == text


@given(st.one_of(st.text(), st.floats().map(str), st.integers().map(str)))
def test_no_text_is_lost(text: str) -> None:
    found = typed(text)
    assert str(found) == text
    if isinstance(found, float):
        assert math.isfinite(found)


@given(st.text(max_size=200))
def test_names_are_valid_or_empty(text: str) -> None:
    name = version_name(text)
    if name and len(name) != 64:
        check_name(name)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Digits CNN", "Digits-CNN"),
        ("/Users/ada/first try!", "Users-ada-first-try"),
        ("lenet_5.v2", "lenet_5.v2"),
        ("..", ""),
        ("数字", ""),
        ("latest", "latest-model"),
        ("a@b", "a-b"),
    ],
)
def test_names(text: str, name: str) -> None:
    assert version_name(text) == name


def made(folder: Path, *parts: str) -> Path:
    path = Path(folder, *parts)
    path.mkdir(parents=True)
    return path


@pytest.mark.parametrize(
    "uri",
    [
        f"file:///home/ada/mlruns/1/{RUN}/artifacts",
        f"/home/ada/mlruns/1/{RUN}/artifacts",
        f"mlruns/1/{RUN}/artifacts",
        f"./mlruns/1/{RUN}/artifacts/",
        f"file:///C:/Users/ada/mlruns/1/{RUN}/artifacts",
        f"C:\\Users\\ada\\mlruns\\1\\{RUN}\\artifacts",
        f"file:///home/a%20da/mlruns/1/{RUN}/artifacts",
    ],
)
def test_a_store_that_was_moved(tmp_path: Path, uri: str) -> None:
    inside = made(tmp_path, "store", "1", RUN, "artifacts")
    assert locate([tmp_path / "store"], uri, RUN) == inside


def test_beside_the_store(tmp_path: Path) -> None:
    """What a tracking server wrote: the address does not say where."""
    there = made(tmp_path, "mlartifacts", "1", RUN, "artifacts")
    uri = f"mlflow-artifacts:/1/{RUN}/artifacts"
    assert locate([tmp_path / "mlruns", tmp_path / "mlartifacts"], uri, RUN) == there


def test_outside_the_store_only_where_the_user_says(tmp_path: Path) -> None:
    store, other = made(tmp_path, "store"), made(tmp_path, "other", RUN, "artifacts")
    third = made(tmp_path, "else")
    for uri in (str(other), other.as_uri()):
        assert locate([store, tmp_path / "other"], uri, RUN) == other
        for bases in ([store], [store, third]):
            with pytest.raises(UsageError, match="outside the store, and --artifacts DIR"):
                locate(bases, uri, RUN)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        (f"s3://bucket/1/{RUN}/artifacts", "s3://bucket, which dlv does not fetch"),
        (f"dbfs:/1/{RUN}/artifacts", "dlv does not fetch"),
        (f"http://[::1/{RUN}", "no address"),
        (f"/home/{RUN}\0/artifacts", "no address"),
        (f"file:///store/../secret/{RUN}/artifacts", "not that of a run"),
        (f"file:///store/%2e%2e/secret/{RUN}/artifacts", "not that of a run"),
        ("/etc", "not that of a run"),
        ("", "not that of a run"),
    ],
)
def test_refused(tmp_path: Path, uri: str, message: str) -> None:
    owner = RUN if "\0" not in uri else f"{RUN}\0"
    with pytest.raises(UsageError, match=message):
        locate([tmp_path], uri, owner)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="not there"):
        locate([tmp_path], f"/nowhere/1/{RUN}/artifacts", RUN)


def test_a_link_out_of_the_store(tmp_path: Path) -> None:
    store, secret = made(tmp_path, "store", "1", RUN), made(tmp_path, "secret")
    (store / "artifacts").symlink_to(secret)
    with pytest.raises(UsageError, match="link leads out"):
        locate([tmp_path / "store"], f"/x/1/{RUN}/artifacts", RUN)


def test_steps_are_64_bits() -> None:
    points = Points()
    points.add(2**63 - 1, 1500, math.nan)
    assert (points.steps[0], points.walls[0]) == (2**63 - 1, 1.5)
    with pytest.raises(OverflowError):
        points.add(2**63, 0, 0.0)
