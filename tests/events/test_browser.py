"""The pages of TensorBoard in a browser: each draws itself and gets all that it asks for."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tensorboard.plugins.mesh import plugin_data_pb2

from dlv.events.formats.pbtxt import GraphNode
from dlv.events.logs.points import TENSOR, Metadata, TensorPoint
from dlv.events.provider.provider import BlobKeys, Provider
from dlv.events.server.security import Environ, Start, new_token
from dlv.events.server.serving import Server, address
from dlv.events.server.site import Site
from tests.events import stored

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]
# Quiet, and nothing of it leaves the machine.
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader"),
    *("--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--window-size=1400,1000"),
    "--virtual-time-budget=20000",
]
# What only drawing a page makes it ask for, and the element that it consists of.
PAGES = {
    "timeseries": ("metrics-dashboard", "timeseries/timeSeries"),
    "scalars": ("tf-scalar-dashboard", "scalars/scalars_multirun"),
    "custom_scalars": ("tf-custom-scalar-dashboard", "custom_scalars/layout"),
    "images": ("tf-image-dashboard", "images/individualImage"),
    "audio": ("tf-audio-dashboard", "audio/audio"),
    "graphs": ("tf-graph-dashboard", "graphs/graph"),
    "distributions": ("tf-distribution-dashboard", "distributions/distributions"),
    "histograms": ("tf-histogram-dashboard", "histograms/histograms"),
    "text": ("tf-text-dashboard", "text/text"),
    "pr_curves": ("tf-pr-curve-dashboard", "pr_curves/pr_curves"),
    "hparams": ("tf-hparams-dashboard", "hparams/session_groups"),
    "mesh": ("mesh-dashboard", "mesh/data"),
    "projector": ("iframe", "projector/tensor"),
}
LAYOUT = b"\x12\x1c\n\x06losses\x12\x12\n\x04both\x12\n\n\x08loss|acc"


def tensor(
    tag: str, plugin: str, dtype: str, shape: tuple[int, ...], data: bytes, content: bytes = b""
) -> tuple[Metadata, list[TensorPoint]]:
    point = TensorPoint(tag, 0, stored.WALL, dtype, shape, data)
    return Metadata(tag, plugin, TENSOR, content, tag, ""), [point]


def text(value: bytes) -> bytes:
    return len(value).to_bytes(4, "little") + value


class Pages:
    """A server, and what was asked of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[str, int]] = []
        self.told: list[str] = []
        local, keys = threading.local(), BlobKeys()

        def ask() -> Provider:
            if not hasattr(local, "store"):
                local.store = stored.opened(folder)
            return Provider(local.store, keys=keys)

        def released() -> None:
            if hasattr(local, "store"):
                local.store.close()
                del local.store

        site = Site(ask, "", "here", folder / "projector", self.told.append, {}, released)
        self.server = Server("127.0.0.1", 0, self.told.append, released)
        self.token = new_token()
        self.app = site.pages("127.0.0.1", self.server.port, self.token)
        self.thread = self.server.in_background(self.watched)

    def watched(self, environ: Environ, start: Start) -> Iterable[bytes]:
        def started(status: str, *more: object) -> object:
            self.asked.append((environ["PATH_INFO"], int(status.split()[0])))
            return start(status, *more)

        return self.app(environ, started)

    def open(self, page: str, profile: Path) -> str:
        """The document of a page after it has drawn itself."""
        self.asked.clear()
        url = f"{address('127.0.0.1', self.server.port, self.token)}#{page}"
        assert CHROMIUM is not None
        done = subprocess.run(
            [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "--dump-dom", url],
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        return done.stdout


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    folder = tmp_path_factory.mktemp("pages")
    points = np.random.default_rng(0).random((1, 50, 3)).astype("<f4")
    mesh = plugin_data_pb2.MeshPluginData(name="cloud", content_type=1, components=1 << 1)
    mesh.shape.extend((1, 50, 3))
    with stored.opened(folder) as store:
        run = stored.fill(
            store,
            "train",
            stored.scalars("loss", [1 / (n + 1) for n in range(50)]),
            stored.histograms("weights", [[[0, 1, 2], [1, 2, 3]]] * 3),
            stored.images("input", [[stored.png(16, 16, 9)]]),
            stored.audio("tone", [[stored.wav(800)]]),
            stored.graph(GraphNode("x", "Input"), GraphNode("fc", "FULL", ["x"], {"out": 3})),
            tensor("notes", "text", "string", (1,), text(b"**bold**")),
            tensor("pr", "pr_curves", "float32", (6, 2), bytes(48), b"\x10\x02"),
            tensor("custom_scalars__config__", "custom_scalars", "string", (), text(LAYOUT)),
            tensor(
                "cloud_VERTEX",
                "mesh",
                "float32",
                (1, 50, 3),
                points.tobytes(),
                bytes(mesh.SerializeToString()),
            ),
        )
        stored.described(store, run, {"lr": 0.1, "optimizer": "sgd"})
    projected = folder / "projector" / "train"
    projected.mkdir(parents=True)
    np.savetxt(projected / "0.tsv", points[0], delimiter="\t")
    (projected / "projector_config.pbtxt").write_text(
        'embeddings {\n  tensor_name: "fc"\n  tensor_path: "0.tsv"\n}\n'
    )
    made = Pages(folder)
    yield made
    made.server.stop()
    made.thread.join(30)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_draws_itself(pages: Pages, tmp_path: Path, page: str) -> None:
    element, route = PAGES[page]
    if page == "projector":  # it is only looked for when somebody asks which pages there are
        pages.open("scalars", tmp_path / "first")
    document = pages.open(page, tmp_path / "profile")
    assert f"<{element}" in document
    failed = [(path, status) for path, status in pages.asked if status >= 400]
    assert failed in ([], [("/favicon.ico", 404)])
    assert any(path.endswith(f"/plugin/{route}") for path, _ in pages.asked), pages.asked
