"""The older HTTP API: every line of the conformance checklist from 41 to 56."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from google.protobuf import text_format
from tensorboard.compat.proto import config_pb2, graph_pb2

from dlv.curves.store import CurveStore
from dlv.events.formats.pbtxt import GraphNode
from dlv.events.formats.tensors import OldHistogram
from dlv.events.provider.provider import Provider
from dlv.events.server.legacy_http import BASIS_POINTS, LegacyApi
from dlv.events.server.security import Environ
from dlv.events.server.serving import Shield
from tests.events import stored
from tests.events.stored import WALL

OLD = OldHistogram(
    -0.66,
    0.44,
    8.0,
    -0.80,
    0.73,
    np.array([-0.68, -0.26, -0.1, 0.42, sys.float_info.max]),
    np.array([0.0, 3.0, 0.0, 4.0, 1.0]),
)
GRAPH = (
    GraphNode("A", "Input"),
    GraphNode("B", "Input", (), {"small": "some string", "b": "x" * 2000, "a": "y" * 2000}),
    GraphNode("C", "MatMul", ("A", "B")),
)
PNGS = [stored.png(3, 2, shade) for shade in range(5)]


def run_metadata() -> bytes:
    made = config_pb2.RunMetadata()
    stats = made.step_stats.dev_stats.add(device="/job:localhost/replica:0/task:0/cpu:0")
    node = stats.node_stats.add(node_name="_SOURCE", all_start_micros=1458337695775395)
    node.op_end_rel_micros = 12
    node.memory.add(allocator_name="cpu")
    return bytes(made.SerializeToString())


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CurveStore]:
    with stored.opened(tmp_path_factory.mktemp("curves")) as made:
        stored.fill(
            made,
            "train run",
            stored.scalars("xent", [0.75, 0.5, 0.25], [1448, 5417, 3438]),
            stored.scalars("loss/long", np.arange(30.0).tolist()),
            stored.scalars("odd", [float("nan"), float("inf"), -float("inf")]),
            stored.histograms("weights", [[[0, 2, 4], [2, 4, 1]], [[-1, 1, 2]], []]),
            stored.histograms("old", [[[-0.66, 0.44, 8]]], OLD.packed()),
            stored.images("input/image/2", [[PNGS[0]], [PNGS[1], PNGS[2]], []]),
            stored.images("evil", [[b"<script>alert(1)</script>"]]),
            stored.audio("sound", [[stored.wav(10)], [stored.wav(20), b"fLaC...."]]),
            stored.blobs("forward prop", "graph_tagged_run_metadata", [[run_metadata()]]),
            stored.graph(*GRAPH),
        )
        stored.fill(made, "eval", stored.scalars("precision", [0.5]))
        yield made


class Client:
    def __init__(self, api: LegacyApi) -> None:
        self.api = Shield(api, lambda text: pytest.fail(text))
        self.headers: dict[str, str] = {}

    def get(self, path: str, **query: Any) -> tuple[int, bytes]:
        return self.get_raw(path, urlencode(query))

    def get_raw(self, path: str, query: str, **environ: str) -> tuple[int, bytes]:
        seen: list[Any] = []
        asked: Environ = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": query}
        body = b"".join(self.api(asked | environ, lambda *told: seen.append(told)))
        self.headers = dict(seen[-1][1])
        return int(seen[-1][0].split()[0]), body

    def json(self, path: str, **query: Any) -> Any:
        status, body = self.get(path, **query)
        assert (status, self.headers["Content-Type"]) == (200, "application/json"), body
        return json.loads(body)


@pytest.fixture
def client(store: CurveStore) -> Client:
    return Client(LegacyApi(lambda: Provider(store)))


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Callable[..., Client]]:
    """A client of a store of its own, with sizes of reservoirs."""
    with stored.opened(tmp_path) as made:

        def fill(*given: Any, cap: int = 10_000_000, **sizes: int) -> Client:
            stored.fill(made, "run", *given)
            return Client(LegacyApi(lambda: Provider(made, cap=cap), sizes))

        yield fill


def test_41_runs(client: Client) -> None:
    found = client.json("/data/runs")
    assert list(found) == ["eval", "train run"]
    told = found["train run"].items()
    assert {kind: sorted(tags) if tags is not True else tags for kind, tags in told} == {
        "scalars": ["loss/long", "odd", "xent"],
        "histograms": ["old", "weights"],
        "compressedHistograms": ["old", "weights"],
        "images": ["evil", "input/image/2"],
        "audio": ["sound"],
        "graph": True,
        "run_metadata": ["forward prop"],
    }
    assert found["eval"]["scalars"] == ["precision"]
    assert found["eval"]["graph"] is False
    assert len(found["eval"]) == 7


def test_42_scalars_in_the_order_written(client: Client) -> None:
    assert client.json("/data/scalars", run="train run", tag="xent") == [
        [WALL, 1448, 0.75],
        [WALL + 0.5, 5417, 0.5],
        [WALL + 1, 3438, 0.25],
    ]
    odd = client.json("/data/scalars", run="train run", tag="odd")
    assert [value for _, _, value in odd] == ["NaN", "Infinity", "-Infinity"]


def test_43_scalars_as_csv(client: Client) -> None:
    status, body = client.get("/data/scalars", run="train run", tag="xent", format="csv")
    assert status == 200
    assert client.headers["Content-Type"] == "text/csv; charset=utf-8"
    rows = list(csv.reader(io.StringIO(body.decode())))
    assert rows[:2] == [["Wall time", "step", "value"], [str(WALL), "1448", "0.75"]]
    assert len(rows) == 4
    assert client.get("/data/scalars", run="train run", tag="xent", format="xml")[0] == 400
    assert client.get("/data/scalars", format="csv")[0] == 400


def test_44_samples_of_all_scalars(client: Client) -> None:
    found = client.json("/data/scalars")
    assert {run: set(tags) for run, tags in found.items()} == {
        "train run": {"xent", "loss/long", "odd"},
        "eval": {"precision"},
    }
    assert [value for _, _, value in found["train run"]["loss/long"]] == [
        *(0, 3, 6, 10, 13, 16, 19, 23, 26, 29)
    ]
    assert len(found["train run"]["xent"]) == 3
    few = client.json("/data/scalars", sample_count=2)["train run"]["loss/long"]
    assert [step for _, step, _ in few] == [0, 29]
    for wrong in ("1", "0", "-3", "x", "2.5", "", "²", "1e3", "9" * 40):
        assert client.get("/data/scalars", sample_count=wrong)[0] == 400, wrong


def test_45_histograms(client: Client) -> None:
    first, second, empty = client.json("/data/histograms", run="train run", tag="weights")
    # Only buckets were written: numbers stand in their middles, 1 and 3.
    assert first == [WALL, 0, [0.0, 4.0, 5.0, 7.0, 13.0, [2.0, 4.0], [4.0, 1.0]]]
    assert second[2] == [-1.0, 1.0, 2.0, 0.0, 0.0, [1.0], [2.0]]
    assert empty[2] == [0.0, 0.0, 0.0, 0.0, 0.0, [], []]
    ((_, _, old),) = client.json("/data/histograms", run="train run", tag="old")
    limits, counts = OLD.limits.tolist(), OLD.counts.tolist()
    assert old == [-0.66, 0.44, 8.0, -0.80, 0.73, limits, counts]


def test_46_compressed_histograms(client: Client) -> None:
    first, *_ = client.json("/data/compressedHistograms", run="train run", tag="weights")
    assert first[:2] == [WALL, 0]
    assert [point for point, _ in first[2]] == list(BASIS_POINTS)
    assert first[2][0] == [0, 0.0]
    assert first[2][4] == [5000, 1.25]
    assert first[2][-1] == [10000, 4.0]
    ((_, _, old),) = client.json("/data/compressedHistograms", run="train run", tag="old")
    assert (old[0], old[-1]) == ([0, -0.66], [10000, 0.44])


def test_47_images(client: Client) -> None:
    found = client.json("/data/images", run="train run", tag="input/image/2")
    assert found[0] == {
        "width": 3,
        "height": 2,
        "wall_time": WALL,
        "step": 0,
        "query": "index=0&tagname=input%2Fimage%2F2&run=train+run",
    }
    assert [entry["step"] for entry in found] == [0, 1, 1]


def test_48_individual_image(client: Client) -> None:
    for entry, expected in zip(
        client.json("/data/images", run="train run", tag="input/image/2"), PNGS[:3], strict=True
    ):
        for path in ("/data/individualImage", "/individualImage"):
            assert client.get_raw(path, entry["query"]) == (200, expected)
            assert client.headers["Content-Type"] == "image/png"
            assert client.headers["X-Content-Type-Options"] == "nosniff"
            assert client.headers["Content-Security-Policy"] == "sandbox; default-src 'none'"
    (evil,) = client.json("/data/images", run="train run", tag="evil")
    assert client.get_raw("/data/individualImage", evil["query"])[0] == 200
    assert client.headers["Content-Type"] == "application/octet-stream"
    assert client.headers["Content-Disposition"] == "attachment"


def test_49_audio(client: Client) -> None:
    found = client.json("/data/audio", run="train run", tag="sound")
    assert found[0] == {
        "wall_time": WALL,
        "step": 0,
        "content_type": "audio/wav",
        "query": "index=0&tagname=sound&run=train+run",
    }
    assert [entry["content_type"] for entry in found[1:]] == [
        "audio/wav",
        "application/octet-stream",
    ]


def test_50_individual_audio(client: Client) -> None:
    found = client.json("/data/audio", run="train run", tag="sound")
    for entry, expected in zip(found[:2], (10, 20), strict=True):
        assert client.get_raw("/data/individualAudio", entry["query"]) == (
            200,
            stored.wav(expected),
        )
        assert client.headers["Content-Type"] == entry["content_type"] == "audio/wav"


def test_51_graph(client: Client) -> None:
    status, body = client.get("/data/graph", run="train run")
    assert (status, client.headers["Content-Encoding"]) == (200, "gzip")
    whole = text_format.Parse(gzip.decompress(body), graph_pb2.GraphDef())
    assert [(node.name, node.op, list(node.input)) for node in whole.node] == [
        ("A", "Input", []),
        ("B", "Input", []),
        ("C", "MatMul", ["A", "B"]),
    ]
    _, body = client.get(
        "/data/graph", run="train run", limit_attr_size=1024, large_attrs_key="_too_large"
    )
    node = text_format.Parse(gzip.decompress(body), graph_pb2.GraphDef()).node[1]
    assert set(node.attr) == {"small", "_too_large"}
    assert list(node.attr["_too_large"].list.s) == [b"a", b"b"]
    for wrong in ("0", "-1", "x", "1.5", ""):
        query = {"run": "train run", "limit_attr_size": wrong, "large_attrs_key": "k"}
        assert client.get("/data/graph", **query)[0] == 400, wrong
    assert client.get("/data/graph", run="train run", limit_attr_size=1024)[0] == 400
    assert client.get("/data/graph", run="eval")[0] == 404


def test_52_run_metadata(client: Client) -> None:
    status, body = client.get("/data/run_metadata", run="train run", tag="forward prop")
    assert (status, client.headers["Content-Encoding"]) == (200, "gzip")
    found = text_format.Parse(gzip.decompress(body), config_pb2.RunMetadata())
    assert found == config_pb2.RunMetadata.FromString(run_metadata())


def test_who_does_not_accept_gzip_gets_text(client: Client) -> None:
    _, body = client.get_raw("/data/graph", "run=train+run", HTTP_ACCEPT_ENCODING="identity")
    assert body.startswith(b'node {\n  name: "A"\n  op: "Input"\n}\n')
    assert "Content-Encoding" not in client.headers


def test_53_tags_that_belong_together_keep_the_same_places(other: Callable[..., Client]) -> None:
    client = other(
        stored.scalars("a", np.arange(500.0).tolist()),
        stored.scalars("b", (np.arange(500.0) * 2).tolist()),
        stored.histograms("h", [[[0, 1, n + 1]] for n in range(500)]),
        scalars=20,
        histograms=20,
    )
    a = client.json("/data/scalars", run="run", tag="a")
    b = client.json("/data/scalars", run="run", tag="b")
    h = client.json("/data/histograms", run="run", tag="h")
    assert len(a) == 20
    assert [step for _, step, _ in a] == [step for _, step, _ in b] == [step for _, step, _ in h]
    assert all(2 * x == y for (_, _, x), (_, _, y) in zip(a, b, strict=True))


def test_54_reservoirs_have_their_size_and_the_latest(other: Callable[..., Client]) -> None:
    """That all others have equal chances is tested in test_reservoirs.py, by chi-square."""
    client = other(stored.scalars("a", np.arange(100.0).tolist()), scalars=7)
    found = client.json("/data/scalars", run="run", tag="a")
    assert len(found) == 7
    assert found[-1][1:] == [99, 99.0]
    assert found == sorted(found)


def test_55_sizes_by_type(other: Callable[..., Client]) -> None:
    client = other(
        stored.scalars("s", np.arange(1200.0).tolist()),
        stored.histograms("h", [[[0, 1, 1]]] * 520),
        stored.images("i", [[PNGS[n % 5]] for n in range(25)]),
        stored.audio("a", [[stored.wav(n)] for n in range(25)]),
    )
    told = {
        "scalars": "s",
        "histograms": "h",
        "compressedHistograms": "h",
        "images": "i",
        "audio": "a",
    }
    sizes = {
        path: len(client.json(f"/data/{path}", run="run", tag=tag)) for path, tag in told.items()
    }
    assert sizes == {
        "scalars": 1000,
        "histograms": 500,
        "compressedHistograms": 500,
        "images": 10,
        "audio": 10,
    }
    all_of_it = other(scalars=0, images=0, histograms=3)
    assert len(all_of_it.json("/data/scalars", run="run", tag="s")) == 1200
    assert len(all_of_it.json("/data/images", run="run", tag="i")) == 25
    assert len(all_of_it.json("/data/histograms", run="run", tag="h")) == 3
    newest = client.json("/data/images", run="run", tag="i")[-1]
    assert client.get_raw("/data/individualImage", newest["query"])[1] == PNGS[24 % 5]


@pytest.mark.parametrize(
    ("path", "tag"),
    [
        ("scalars", "xent"),
        ("histograms", "weights"),
        ("compressedHistograms", "weights"),
        ("images", "evil"),
        ("audio", "sound"),
        ("run_metadata", "forward prop"),
    ],
)
def test_56_what_is_not_there(client: Client, path: str, tag: str) -> None:
    assert client.get(f"/data/{path}", run="train run", tag=tag)[0] == 200
    status, body = client.get(f"/data/{path}", run="train", tag=tag)
    assert (status, json.loads(body)["error"]["message"]) == (404, "no run `train`")
    assert client.get(f"/data/{path}", run="train run", tag="nothing")[0] == 404
    assert client.get(f"/data/{path}", run="eval", tag=tag)[0] == 404
    assert client.get(f"/data/{path}", run="train run")[0] == 400
    assert client.get(f"/data/{path}", tag=tag)[0] == 400


def test_items_that_are_not_there(client: Client) -> None:
    known = {"run": "train run", "tagname": "input/image/2"}
    assert client.get("/data/individualImage", **known, index=1, number=1)[1] == PNGS[2]
    assert client.get("/data/individualImage", **known, index=1, number=2)[0] == 404
    assert client.get("/data/individualImage", **known, index=2)[0] == 404  # a step without images
    assert client.get("/data/individualImage", **known, index=3)[0] == 404
    assert client.get("/data/individualImage", **known, index=10**17)[0] == 404
    assert client.get("/data/individualImage", **known)[0] == 400
    assert client.get("/data/individualImage", **known, index="-1")[0] == 400
    assert client.get("/data/individualImage", **known, index=0, number="x")[0] == 400
    assert client.get("/data/individualAudio", run="train run", tagname="sound", index=9)[0] == 404


def test_pages_that_are_not_there(client: Client) -> None:
    for path in ("", "/", "/data", "/data/", "/data/nothing", "/data/data/runs", "/data/runs/"):
        assert client.get(path)[0] == 404, path
    assert b"/compressedHistograms" in client.get("/data/scalar")[1]
    assert client.get_raw("/data/runs", "", REQUEST_METHOD="POST")[0] == 405


def test_an_answer_has_a_limit(other: Callable[..., Client]) -> None:
    client = other(stored.scalars("a", np.arange(100.0).tolist()), cap=50, scalars=0)
    status, body = client.get("/data/scalars", run="run", tag="a")
    assert (status, json.loads(body)["error"]["kind"]) == (400, "invalid argument")
    assert client.get("/data/scalars", sample_count=51)[0] == 400
    assert client.get("/data/scalars", sample_count=50)[0] == 200


def test_an_empty_store(tmp_path: Path) -> None:
    with stored.opened(tmp_path) as made:
        client = Client(LegacyApi(lambda: Provider(made)))
        assert client.json("/data/runs") == {}
        assert client.json("/data/scalars") == {}
        assert client.get("/data/scalars", run="a", tag="b")[0] == 404
