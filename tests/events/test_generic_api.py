"""What TensorBoard's documents ask of a provider, line by line: 1 to 18, 39 and 40 of the list."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.events.server.security as security
from dlv.curves.store import CurveStore
from dlv.errors import NotFound
from dlv.events.logs.points import BLOBS, SCALAR, BlobPoint, ScalarPoints
from dlv.events.provider.provider import BlobKeys, Place, Provider
from dlv.events.provider.sampling import Choice
from dlv.events.provider.store import BlobReference, InvalidArgument, Unreadable
from tests.events import filled_store as fill

EVERY = Choice(points=None)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CurveStore]:
    with fill.opened(tmp_path) as found:
        yield found


@pytest.fixture
def provider(store: CurveStore) -> Provider:
    return Provider(store)


def names(found: Any) -> set[tuple[str, str]]:
    return {(run, tag) for run, by_tag in found.items() for tag in by_tag}


def steps(points: Any) -> list[int]:
    return [int(step) for step in points.steps]


def test_01_three_classes_keyed_by_experiment_run_tag_and_step(
    store: CurveStore, provider: Provider
) -> None:
    for experiment in ("", "other"):
        fill.scalars(
            store, "a", "loss", [3, 1, 2], [30, 10, 20 + len(experiment)], experiment=experiment
        )
        fill.tensors(store, "a", "weights", range(2), experiment=experiment)
        fill.blobs(store, "a", "seen", [(7, [b"one", b"two"])], experiment=experiment)
    assert provider.experiments() == ["", "other"]
    for experiment in ("", "other"):
        found = provider.read_scalars(experiment=experiment)["a"]["loss"]
        assert (steps(found), found.values.tolist()) == ([1, 2, 3], [10, 20 + len(experiment), 30])
        assert found.walls.tolist() == [1001, 1002, 1003]
        tensors = provider.read_tensors("histograms", experiment=experiment)["a"]["weights"]
        assert [(each.step, each.array.tolist()) for each in tensors] == [(0, [0, 1]), (1, [1, 2])]
        (point,) = provider.read_blob_sequences("images", experiment=experiment)["a"]["seen"]
        assert (point.step, len(point.blobs)) == (7, 2)
    with pytest.raises(NotFound, match="no experiment `othr`") as error:
        provider.read_scalars(experiment="othr")
    assert error.value.did_you_mean == ["other"]


def test_02_every_call_filters_by_plugin(store: CurveStore, provider: Provider) -> None:
    fill.scalars(store, "a", "loss", [1])
    fill.scalars(store, "a", "mine", [1], plugin="own")
    fill.tensors(store, "a", "t", [1], plugin="histograms")
    fill.tensors(store, "a", "t mine", [1], plugin="own")
    fill.blobs(store, "a", "b", [(1, [b""])], plugin="images")
    fill.blobs(store, "a", "b mine", [(1, [b""])], plugin="own")
    assert (
        names(provider.list_scalars("scalars")) == names(provider.read_scalars()) == {("a", "loss")}
    )
    assert (
        names(provider.list_scalars("own"))
        == names(provider.read_scalars("own"))
        == {("a", "mine")}
    )
    assert names(provider.read_last_scalars("own")) == {("a", "mine")}
    assert (
        names(provider.list_tensors("own"))
        == names(provider.read_tensors("own"))
        == {("a", "t mine")}
    )
    found = provider.list_blob_sequences("own"), provider.read_blob_sequences("own")
    assert [names(each) for each in found] == [{("a", "b mine")}] * 2
    assert names(provider.series("own")) == {("a", "mine"), ("a", "t mine"), ("a", "b mine")}
    assert provider.list_scalars("nobody") == {}


def test_03_runs_and_tags_are_a_cross_product(store: CurveStore, provider: Provider) -> None:
    for run in "abc":
        for tag in "xyz":
            fill.scalars(store, run, tag, [1])
    for ask in (provider.list_scalars, provider.read_scalars, provider.read_last_scalars):
        assert names(ask(runs=["a", "b"], tags={"x", "z"})) == {
            ("a", "x"),
            ("a", "z"),
            ("b", "x"),
            ("b", "z"),
        }
        assert len(names(ask())) == 9
        assert len(names(ask(runs=None, tags=("y",)))) == 3
        assert ask(runs=[]) == ask(tags=[]) == {}
    with pytest.raises(InvalidArgument, match="`runs` is 'abc'"):
        provider.list_scalars(runs="abc")
    with pytest.raises(InvalidArgument, match="`tags` is"):
        provider.list_scalars(tags=[1])  # type: ignore[list-item]


def test_04_lists_tell_of_each_series(store: CurveStore, provider: Provider) -> None:
    told = fill.metadata("p", "images", BLOBS, b"\1content", "A name", "*What* it is")
    sequences = [(4, b"12"), (9, b"1234"), (2, b"")]
    points = [
        BlobPoint("p", step, 50.0 - step, tuple(bytes([each]) for each in blobs))
        for step, blobs in sequences
    ]
    fill.put(store, "a", points, [told])
    found = provider.list_blob_sequences("images")["a"]["p"]
    assert (found.max_step, found.max_wall, found.length, found.n) == (9, 48.0, 4, 3)
    assert (found.content, found.display_name, found.description) == (
        b"\1content",
        "A name",
        "*What* it is",
    )
    fill.scalars(store, "a", "loss", [5, 3], [1.0, 2.0])
    listed = provider.list_scalars()["a"]["loss"]
    assert (listed.max_step, listed.max_wall, listed.length, listed.last) == (5, 1005.0, None, 2.0)
    fill.tensors(store, "a", "t", [8, 2])
    assert provider.list_tensors("histograms")["a"]["t"].max_step == 8


def test_05_what_does_not_exist_is_left_out(store: CurveStore, provider: Provider) -> None:
    fill.scalars(store, "a", "x", [1])
    fill.scalars(store, "b", "y", [1])
    found = provider.read_scalars(runs=["a", "b", "none"], tags=["x", "y", "nothing"])
    assert {run: set(tags) for run, tags in found.items()} == {"a": {"x"}, "b": {"y"}}
    assert provider.read_scalars(runs=["a"], tags=["y"]) == {}


def test_06_a_range_of_steps(store: CurveStore, provider: Provider) -> None:
    fill.scalars(store, "a", "x", range(0, 20_000, 2))
    fill.tensors(store, "a", "t", range(10))
    fill.blobs(store, "a", "b", [(step, [b"%d" % step]) for step in range(10)])

    def scalars(first: int | None, last: int | None) -> list[int]:
        choice = Choice(points=None, steps=(first, last))
        return steps(provider.read_scalars(choice=choice)["a"]["x"])

    assert scalars(9_000, 9_005) == [9000, 9002, 9004], "both ends are included"
    assert scalars(None, 3) == [0, 2]
    assert scalars(19_995, None) == [19996, 19998]
    assert scalars(1, 1) == []
    chosen = Choice(steps=(3, 5))
    assert [each.step for each in provider.read_tensors("histograms", chosen)["a"]["t"]] == [
        3,
        4,
        5,
    ]
    found = provider.read_blob_sequences("images", chosen)["a"]["b"]
    assert [each.step for each in found] == [3, 4, 5]
    thinned = provider.read_scalars(choice=Choice(points=7, steps=(100, 9_000)))["a"]["x"]
    assert len(thinned) == 7
    assert steps(thinned)[-1] == 9_000


def test_07_the_most_recent_steps(store: CurveStore, provider: Provider) -> None:
    fill.scalars(store, "a", "x", [*range(9_000), 4, 5])
    fill.tensors(store, "a", "t", [5, 1, 4])
    fill.blobs(store, "a", "b", [(5, [b"5"]), (1, [b"1"]), (4, [b"4"])])
    found = provider.read_scalars(choice=Choice(last=3))["a"]["x"]
    assert steps(found) == [8997, 8998, 8999], "the greatest steps, not the last that were written"
    assert [t.step for t in provider.read_tensors("histograms", Choice(last=2))["a"]["t"]] == [4, 5]
    (newest,) = provider.read_blob_sequences("images", Choice(last=1))["a"]["b"]
    assert newest.step == 5
    assert steps(provider.read_scalars(choice=Choice(last=0))["a"]["x"]) == []


def test_08_a_range_of_blobs_and_the_most_recent_one(store: CurveStore, provider: Provider) -> None:
    fill.blobs(store, "a", "b", [(1, [b"0", b"1", b"2", b"3"]), (2, [b"x"]), (3, [])])

    def read(indices: Any) -> list[list[bytes]]:
        found = provider.read_blob_sequences("images", indices=indices)["a"]["b"]
        return [[provider.read_blob(str(blob.key)) for blob in each.blobs] for each in found]

    assert read((1, 2)) == [[b"1", b"2"], [], []]
    assert read((0, 0)) == [[b"0"], [b"x"], []]
    assert read("last") == [[b"3"], [b"x"], []]
    assert read((3, 99)) == [[b"3"], [], []]
    last = provider.read_blob_sequences("images", indices="last")["a"]["b"][0].blobs[0]
    assert (last.index, last.size) == (3, 1)
    for wrong in ((2, 1), (-1, 2), (0,), "first", (0, 1.5), 3):
        with pytest.raises(InvalidArgument, match="not a range of blobs"):
            read(wrong)


def test_09_downsampling(store: CurveStore, provider: Provider) -> None:
    fill.scalars(store, "a", "x", range(5_000))
    fill.tensors(store, "a", "t", range(50))
    fill.blobs(store, "a", "b", [(step, [b"0", b"1", b"2"]) for step in range(50)])
    for sampling in ("sampled", "linear", "step", "envelope"):
        for k in (1, 2, 3, 17, 999, 1000, 5_000, 10**9):
            choice = Choice(points=k, sampling=sampling)
            found = steps(provider.read_scalars(choice=choice)["a"]["x"])
            assert len(found) <= k, sampling
            assert found[-1] == 4_999, "the last one is always there"
            assert found == steps(provider.read_scalars(choice=choice)["a"]["x"]), "and the same"
        none = Choice(points=0, sampling=sampling)
        assert steps(provider.read_scalars(choice=none)["a"]["x"]) == []
    for k in (0, 1, 7, 50, 51):
        tensors = provider.read_tensors("histograms", Choice(points=k))["a"]["t"]
        sequences = provider.read_blob_sequences("images", Choice(points=k))["a"]["b"]
        assert len(tensors) == len(sequences) == min(k, 50)
        assert all(len(each.blobs) == 3 for each in sequences), "along steps, not along blobs"
        if k:
            assert tensors[-1].step == sequences[-1].step == 49
    with pytest.raises(InvalidArgument, match="only scalars have an envelope"):
        provider.read_tensors("histograms", Choice(sampling="envelope"))


def test_10_parallel_series_keep_equal_steps(store: CurveStore, provider: Provider) -> None:
    kept = [step for step in range(30_000) if step % 7 != 3]
    for run in "ab":
        for tag in "xy":
            fill.scalars(store, run, tag, kept, [math.sin(step * len(tag)) for step in kept])
    for choice in (
        Choice(),
        Choice(points=10),
        Choice(points=50, steps=(77, 20_000)),
        Choice(last=99),
    ):
        found = provider.read_scalars(choice=choice)
        columns = {tuple(steps(found[run][tag])) for run, tag in names(found)}
        assert len(columns) == 1


def test_11_an_answer_has_a_greatest_size(store: CurveStore) -> None:
    for run in "abc":
        for tag in "xy":
            fill.scalars(store, run, tag, range(1000))
    provider = Provider(store, cap=3_000)
    assert len(names(provider.read_scalars(choice=Choice(points=500)))) == 6
    with pytest.raises(InvalidArgument, match="up to 3006 points of 6 series") as error:
        provider.read_scalars(choice=Choice(points=501))
    assert error.value.why == "an answer has at most 3000"
    with pytest.raises(InvalidArgument):
        provider.read_scalars(choice=EVERY)
    assert len(names(provider.read_scalars(choice=EVERY, runs=["a"]))) == 2
    # Points that are not there are not counted.
    assert len(names(provider.read_scalars(choice=Choice(points=10**9), tags=["x"]))) == 3


def test_12_a_blob_has_an_address_or_a_key(store: CurveStore, provider: Provider) -> None:
    fill.blobs(store, "a", "b", [(1, [b"bytes"])])
    (point,) = provider.read_blob_sequences("images")["a"]["b"]
    (blob,) = point.blobs
    assert blob.url is None
    assert blob.key is not None
    assert set(blob.key) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert BlobReference(url="https://example.org/x").key is None
    for key, url in ((None, None), ("key", "url")):
        with pytest.raises(ValueError, match="an address or a key"):
            BlobReference(key, url)


def test_13_a_blob_by_its_key(store: CurveStore) -> None:
    keys = BlobKeys()
    provider = Provider(store, keys=keys)
    fill.blobs(store, "a", "b", [(1, [b"bytes", b""])])
    (point,) = provider.read_blob_sequences("images")["a"]["b"]
    assert [provider.read_blob(str(blob.key)) for blob in point.blobs] == [b"bytes", b""]
    good = str(point.blobs[0].key)
    other = Provider(store).read_blob_sequences("images")["a"]["b"][0].blobs[0].key
    place = keys.place(good)
    nowhere = [
        place._replace(series=99),
        place._replace(ordinal=7),
        place._replace(number=2),
        place._replace(blob=place.blob + 1),
        Place(2**63 - 1, 2**63 - 1, 2**32 - 1, 2**63 - 1),
    ]
    for key in (
        "",
        "x",
        good[:-1],
        good + "A",
        good.swapcase(),
        str(other),
        *map(keys.key, nowhere),
    ):
        with pytest.raises(NotFound):
            provider.read_blob(key)
        with pytest.raises(NotFound):  # before the first piece, not after it
            provider.open_blob(key)


def test_14_a_blob_over_http(store: CurveStore, provider: Provider) -> None:
    fill.blobs(store, "a", "b", [(1, [b"\x89PNG\r\n\x1a\nrest", b"<script>"])])
    (point,) = provider.read_blob_sequences("images")["a"]["b"]

    def get(path: str) -> tuple[str, dict[str, str], bytes]:
        told: list[Any] = []
        app = security.BlobRoute(
            lambda _, start: (start("404 Not Found", []), [b"elsewhere"])[1], lambda: provider
        )
        environ = {"PATH_INFO": path, "REQUEST_METHOD": "GET"}
        body = b"".join(app(environ, lambda *start: told.append(start)))
        return told[0][0], dict(told[0][1]), body

    picture, script = (get(f"/data/blob/{blob.key}") for blob in point.blobs)
    assert picture[0].startswith("200")
    assert picture[1]["Content-Type"] == "image/png"
    assert picture[2] == b"\x89PNG\r\n\x1a\nrest"
    assert script[1]["Content-Type"] == "application/octet-stream"
    assert script[2] == b"<script>"
    assert get("/data/runs")[2] == b"elsewhere"
    with pytest.raises(NotFound):
        get("/data/blob/unknown")


def test_15_everything_of_a_plugin_with_its_kind(store: CurveStore, provider: Provider) -> None:
    fill.scalars(store, "a", "s", [1], plugin="own")
    fill.tensors(store, "a", "t", [1, 2], plugin="own")
    fill.blobs(store, "b", "b", [(1, [b"1", b"2"])], plugin="own")
    found = provider.series("own")
    assert {(run, tag): found[run][tag].kind for run, tag in names(found)} == {
        ("a", "s"): "scalar",
        ("a", "t"): "tensor",
        ("b", "b"): "blobs",
    }
    assert found["a"]["t"].n == 2
    assert found["b"]["b"].length == 2


def test_16_only_plugins_of_which_something_can_be_listed(
    store: CurveStore, provider: Provider
) -> None:
    assert provider.plugins() == []
    fill.scalars(store, "a", "s", [1])
    fill.blobs(store, "a", "b", [(1, [])])
    unknown = fill.metadata("u", "unknown", 0)
    fill.put(store, "a", [], [unknown])
    assert provider.plugins() == ["images", "scalars"]
    assert provider.series("unknown") == {}


def test_17_a_blob_comes_in_pieces(store: CurveStore, provider: Provider) -> None:
    blob = bytes(range(256)) * (80 << 10)  # 20 MiB
    fill.blobs(store, "a", "b", [(1, [b"small", blob])])
    key = provider.read_blob_sequences("images")["a"]["b"][0].blobs[1].key
    pieces = list(provider.open_blob(str(key)))
    assert max(map(len, pieces)) <= 8 << 20
    assert b"".join(pieces) == blob


@pytest.mark.slow
def test_17_a_blob_of_more_than_a_gigabyte(store: CurveStore, provider: Provider) -> None:
    size = (1 << 30) + 12_345
    fill.blobs(store, "a", "b", [(1, [bytes(size - 4) + b"last"])])
    (point,) = provider.read_blob_sequences("images")["a"]["b"]
    assert point.blobs[0].size == size
    read, end = 0, b""
    for piece in provider.open_blob(str(point.blobs[0].key)):
        assert len(piece) <= 64 << 20
        read += len(piece)
        end = piece
    assert (read, end[-4:]) == (size, b"last")


def test_18_sequences_of_one_blob_and_of_none(store: CurveStore, provider: Provider) -> None:
    fill.blobs(store, "a", "one", [(1, [b"x"])])
    fill.blobs(store, "a", "none", [(1, []), (2, [])])
    found = provider.read_blob_sequences("images")["a"]
    assert [len(each.blobs) for each in found["one"]] == [1]
    assert [(each.step, each.blobs) for each in found["none"]] == [(1, ()), (2, ())]
    listed = provider.list_blob_sequences("images")["a"]
    assert (listed["one"].length, listed["none"].length) == (1, 0)


def test_39_numbers_that_are_none_keep_their_bits(store: CurveStore, provider: Provider) -> None:
    odd = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_DEAD_BEEF))[0]
    values = [math.nan, math.inf, -math.inf, -0.0, 5e-324, odd, 0.1, 1 / 3]
    fill.scalars(store, "a", "x", range(8), values)
    fill.scalars(store, "a", "only", [0], [math.nan])
    bits = np.asarray(values).view(np.uint64).tolist()
    for choice in (Choice(), EVERY, Choice(steps=(0, 9)), Choice(last=8)):
        found = provider.read_scalars(choice=choice)["a"]["x"]
        assert found.values.view(np.uint64).tolist() == bits
    assert math.isnan(provider.read_last_scalars()["a"]["only"].value)
    last = provider.list_scalars()["a"]["only"].last
    assert last is not None
    assert math.isnan(last)
    odd_times = [math.nan, math.inf]
    fill.scalars(store, "b", "x", [0, 1], walls=odd_times)
    walls = provider.read_scalars(runs=["b"])["b"]["x"].walls
    assert math.isnan(walls[0])
    assert math.isinf(walls[1])


def test_40_names_of_nested_runs(store: CurveStore, provider: Provider) -> None:
    runs = [".", "lenet@1", "lenet@1/eval", "lenet@1/eval/deep er", "lenet@10", "ünï/cödé"]
    for run in runs:
        fill.scalars(store, run, "a/b/c", [1])
    assert [run.name for run in provider.runs()] == sorted(runs)
    for run in runs:
        assert names(provider.read_scalars(runs=[run])) == {(run, "a/b/c")}


def test_a_series_without_a_point_that_could_be_kept(store: CurveStore, provider: Provider) -> None:
    """Named alone it is an error, beside others it is left out."""
    fill.scalars(store, "a", "good", [1])
    fill.put(store, "a", [], [fill.metadata("bad", "scalars", SCALAR)])
    with store.database.atomic():
        store.database.execute("UPDATE series SET error = 'rank 2' WHERE tag = 'bad'")
    assert names(provider.list_scalars()) == {("a", "good"), ("a", "bad")}
    assert names(provider.read_scalars()) == {("a", "good")}
    assert names(provider.read_last_scalars()) == {("a", "good")}
    with pytest.raises(Unreadable, match="`bad` of the run `a`") as error:
        provider.read_scalars(runs=["a"], tags=["bad"])
    assert error.value.why == "rank 2"


def test_a_series_without_points(store: CurveStore, provider: Provider) -> None:
    fill.put(store, "a", [], [fill.metadata("x", "scalars", SCALAR)])
    assert len(provider.read_scalars()["a"]["x"]) == 0
    assert provider.read_last_scalars() == {}
    assert provider.list_scalars()["a"]["x"].max_step is None


def test_the_point_written_last_is_the_last_one(store: CurveStore, provider: Provider) -> None:
    points = ScalarPoints("x", np.array([9, 3]), np.array([5.0, 4.0]), np.array([1.0, 2.0]))
    fill.put(store, "a", [points], [fill.metadata("x", "scalars", SCALAR)], start=12.5)
    assert provider.read_last_scalars()["a"]["x"] == (3, 4.0, 2.0)
    assert provider.runs()[0] == ("a", None, 12.5)


def test_names_that_nothing_can_have(store: CurveStore, provider: Provider) -> None:
    fill.scalars(store, "a", "x", [1])
    for name in ("\ud800", "\0", "", "x" * 100_000):
        assert provider.list_scalars(name) == {}
        assert provider.read_scalars(name) == {}
        assert provider.list_scalars(runs=[name]) == provider.list_scalars(tags=[name]) == {}
    for wrong in (None, 5, ["scalars"]):
        with pytest.raises(InvalidArgument, match="`plugin` is"):
            provider.list_scalars(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="`runs` is 5"):
        provider.list_scalars(runs=5)  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        provider.runs("\ud800")
