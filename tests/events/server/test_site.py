"""All that one port answers: a smoke test of each route of TensorBoard, and requests by lot."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest

from dlv.curves.store import CurveStore
from dlv.events.formats.pbtxt import GraphNode
from dlv.events.logs.points import TENSOR, Metadata, TensorPoint
from dlv.events.provider.provider import BlobKeys, Provider
from dlv.events.server.security import App, Environ
from dlv.events.server.site import Site
from tests.events import stored
from tests.events.fuzzed_requests import HOST, TOKEN, Fuzz, answered

# What TensorBoard's own code warns of when it is given patterns that make no sense.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

PNG, WAV = stored.png(3, 2, 200), stored.wav(50)
LAYOUT = b"\x12\x1c\n\x06losses\x12\x12\n\x04both\x12\n\n\x08loss|acc"
KEYS = BlobKeys(bytes(32))
SAFE = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "SAMEORIGIN",
    "cross-origin-resource-policy": "same-origin",
}


def tensor(
    tag: str, plugin: str, dtype: str, shape: tuple[int, ...], data: bytes, content: bytes = b""
) -> Any:
    point = TensorPoint(tag, 0, stored.WALL, dtype, shape, data)
    return Metadata(tag, plugin, TENSOR, content, tag, ""), [point]


def texts(*values: bytes) -> bytes:
    return b"".join(len(value).to_bytes(4, "little") + value for value in values)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CurveStore]:
    with stored.opened(tmp_path_factory.mktemp("curves")) as made:
        run = stored.fill(
            made,
            "train",
            stored.scalars("loss", [0.5, float("nan"), 0.25]),
            stored.histograms("weights", [[[0, 1, 2], [1, 2, 3]]] * 3),
            stored.images("input/image", [[PNG], [PNG, PNG]]),
            stored.audio("tone", [[WAV]]),
            stored.graph(GraphNode("x", "Input"), GraphNode("fc", "FULL", ["x"], {"out": 3})),
            tensor("notes", "text", "string", (1,), texts(b"**bold** <script>alert(1)</script>")),
            tensor("pr", "pr_curves", "float32", (6, 2), bytes(48), b"\x10\x02"),
            tensor("layout", "custom_scalars", "string", (), texts(LAYOUT)),
            stored.blobs("page", "images", [[b"3", b"2", b"<html><script>alert(1)</script>"]]),
        )
        stored.described(made, run, {"lr": 0.1, "optimizer": "sgd"})
        yield made


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def app(store: CurveStore, told: list[str], tmp_path_factory: pytest.TempPathFactory) -> App:
    site = Site(
        lambda: Provider(store, keys=KEYS), "", "here", tmp_path_factory.mktemp("p"), told.append
    )
    return site.pages("127.0.0.1", 6006, TOKEN)


def environ(path: str, body: bytes = b"", kind: str = "", **query: Any) -> Environ:
    return {
        "REQUEST_METHOD": "POST" if body else "GET",
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": urlencode(query),
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "6006",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": HOST,
        "HTTP_AUTHORIZATION": f"Bearer {TOKEN}",
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": kind,
    }


def get(app: App, path: str, **query: Any) -> Any:
    status, headers, body = answered(app, environ(path, **query))
    assert status == 200, (path, body)
    assert SAFE.items() <= headers.items(), headers
    return json.loads(body) if headers["content-type"].startswith("application/json") else body


def plugin(app: App, path: str, **query: Any) -> Any:
    return get(app, f"/data/plugin/{path}", **query)


def test_the_pages_and_what_they_are_made_of(app: App) -> None:
    assert b"<script" in get(app, "/")
    assert len(get(app, "/index.js")) > 1_000_000
    assert get(app, "/data/runs") == ["train"]
    assert get(app, "/data/environment")["data_location"] == "here"
    active = {name for name, said in get(app, "/data/plugins_listing").items() if said["enabled"]}
    assert active == {
        *("timeseries", "scalars", "custom_scalars", "images", "audio", "graphs"),
        *("distributions", "histograms", "text", "pr_curves", "hparams"),
    }


def test_no_plugin_that_opens_files_or_is_not_tensorboards_own(app: App) -> None:
    assert not get(app, "/data/plugins_listing").keys() & {"debugger-v2", "whatif", "profile"}


def test_scalars(app: App) -> None:
    assert list(plugin(app, "scalars/tags")["train"]) == ["loss"]
    points = plugin(app, "scalars/scalars", run="train", tag="loss")
    assert [(step, value) for _, step, value in points] == [(0, 0.5), (1, "NaN"), (2, 0.25)]
    body = urlencode({"tag": "loss", "runs": "train"}).encode()
    asked = environ(
        "/data/plugin/scalars/scalars_multirun", body, "application/x-www-form-urlencoded"
    )
    assert json.loads(answered(app, asked)[2])["train"][2][2] == 0.25


def test_time_series(app: App) -> None:
    assert plugin(app, "timeseries/tags")["scalars"]["runTagInfo"] == {"train": ["loss"]}
    wanted = [
        {"plugin": "scalars", "tag": "loss"},
        {"plugin": "histograms", "tag": "weights", "run": "train"},
        {"plugin": "images", "tag": "input/image", "run": "train", "sample": 0},
    ]
    body = urlencode({"requests": json.dumps(wanted)}).encode()
    asked = environ("/data/plugin/timeseries/timeSeries", body, "application/x-www-form-urlencoded")
    scalars, histograms, images = json.loads(answered(app, asked)[2])
    assert len(scalars["runToSeries"]["train"]) == 3
    assert len(histograms["runToSeries"]["train"]) == 3
    image = images["runToSeries"]["train"][0]["imageId"]
    assert plugin(app, "timeseries/imageData", imageId=image) == PNG


def test_histograms_and_distributions(app: App) -> None:
    assert len(plugin(app, "histograms/histograms", run="train", tag="weights")) == 3
    assert len(plugin(app, "distributions/distributions", run="train", tag="weights")) == 3


def test_images_and_audio(app: App) -> None:
    tags = plugin(app, "images/tags")["train"]
    assert tags["input/image"]["samples"] == 2
    first = plugin(app, "images/images", run="train", tag="input/image", sample=0)[0]
    found = plugin(app, "images/individualImage", **query(first))
    assert found == PNG
    (clip,) = plugin(app, "audio/audio", run="train", tag="tone", sample=0)
    assert get(app, "/data/plugin/audio/individualAudio", **query(clip)) == WAV


def query(entry: Any) -> dict[str, str]:
    return dict(parse_qsl(entry["query"]))


def test_text_is_made_harmless(app: App) -> None:
    ((_, found),) = [
        (each["step"], each["text"]) for each in plugin(app, "text/text", run="train", tag="notes")
    ]
    assert "<strong>bold</strong>" in found
    assert "<script>" not in found


def test_curves_layouts_graphs(app: App) -> None:
    assert plugin(app, "pr_curves/tags")["train"].keys() == {"pr"}
    assert len(plugin(app, "pr_curves/pr_curves", run="train", tag="pr")["train"]) == 1
    assert plugin(app, "graphs/info")["train"]["run_graph"] is True
    graph = plugin(app, "graphs/graph", run="train")
    assert b'name: "fc"' in graph
    assert b'key: "out"' in graph


def test_hyperparameters_come_out_of_the_catalogue(app: App) -> None:
    body = json.dumps({"hparamsLimit": 10, "includeMetrics": True}).encode()
    status, _, found = answered(
        app, environ("/data/plugin/hparams/experiment", body, "application/json")
    )
    assert status == 200
    told = json.loads(found)
    assert [each["name"] for each in told["hparamInfos"]] == ["lr", "optimizer"]
    assert [each["name"]["tag"] for each in told["metricInfos"]] == ["loss"]
    body = json.dumps({"sliceSize": 5, "allowedStatuses": ["STATUS_UNKNOWN"]}).encode()
    asked = environ("/data/plugin/hparams/session_groups", body, "application/json")
    groups = json.loads(answered(app, asked)[2])["sessionGroups"]
    assert [group["hparams"]["optimizer"] for group in groups] == ["sgd"]


def key_of(app: App, tag: str, number: int) -> str:
    sequences = plugin(app, "images/images", run="train", tag=tag, sample=number)
    return query(sequences[-1])["blob_key"]


def test_14_stored_blobs(app: App) -> None:
    status, headers, body = answered(app, environ(f"/data/blob/{key_of(app, 'input/image', 0)}"))
    assert (status, body, headers["content-type"]) == (200, PNG, "image/png")
    assert headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert "content-disposition" not in headers


def test_14_what_a_browser_could_run_is_only_saved(app: App) -> None:
    status, headers, body = answered(app, environ(f"/data/blob/{key_of(app, 'page', 0)}"))
    assert (status, body) == (200, b"<html><script>alert(1)</script>")
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-disposition"] == "attachment"
    assert headers["content-security-policy"] == "sandbox; default-src 'none'"


@pytest.mark.parametrize("key", ["", "x", "A" * 59, "../../etc/passwd", "A" * 10_000, "é"])
def test_14_keys_that_nobody_was_given(app: App, key: str) -> None:
    status, _, body = answered(app, environ(f"/data/blob/{key}"))
    assert (status, json.loads(body)["error"]["kind"]) == (404, "not found")


def test_a_key_of_another_server_opens_nothing(app: App, store: CurveStore) -> None:
    other = Provider(store, keys=BlobKeys(b"x" * 32))
    found = other.read_blob_sequences("images", tags=["input/image"])["train"]["input/image"]
    status, _, _ = answered(app, environ(f"/data/blob/{found[0].blobs[2].key}"))
    assert status == 404


def test_the_older_api_below_its_prefix(app: App) -> None:
    assert get(app, "/legacy/data/runs")["train"]["graph"] is True
    assert answered(app, environ("/legacyfoo"))[0] == 404
    assert answered(app, environ("/legacy"))[0] == 404


def test_the_experiment_of_an_address_is_the_only_one(app: App) -> None:
    assert get(app, "/experiment/whatever/data/runs") == ["train"]


def fuzz(app: App, told: list[str], seed: int, count: int) -> dict[int, int]:
    """Statuses by how often they came; none of them a failure of the server."""
    names = ["train", "loss", "weights", "input/image", "tone", "notes", "pr"]
    made = Fuzz(seed, [*names, key_of(app, "input/image", 0)])
    statuses: dict[int, int] = {}
    for _ in range(count):
        asked = made.request()
        before = dict(asked)
        told.clear()
        status, headers, body = answered(app, asked)
        assert 200 <= status < 500, (before, body[:500], told)
        assert SAFE.items() <= headers.items(), before
        assert b"root:x:0" not in body, before
        statuses[status] = statuses.get(status, 0) + 1
    # What was asked has changed nothing.
    assert plugin(app, "scalars/scalars", run="train", tag="loss")[2][2] == 0.25
    return statuses


def test_requests_by_lot(app: App, told: list[str]) -> None:
    statuses = fuzz(app, told, 1, 2000)
    assert statuses[200] > 300
    assert statuses[404] > 100
    assert statuses[400] > 100


@pytest.mark.slow
def test_a_hundred_thousand_requests_by_lot(app: App, told: list[str]) -> None:
    for seed in range(2, 22):
        assert sum(fuzz(app, told, seed, 5000).values()) == 5000
