"""How long answers take, once logs were read: beside TensorBoard's data server, over gRPC.

Both are asked through TensorBoard's own interface and make the same objects. The server holds a
sample of 1000 points of each series in memory; dlv has all points on disk.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tensorboard import context
from tensorboard.data import server_ingester
from tensorboard.data.provider import RunTagFilter
from tensorboard.util import grpc_util

import dlv.curves.ingest as ingest
from benchmarks.curves import logs
from benchmarks.dql.goals import Verdict, at_most
from dlv.curves.store import CurveStore
from dlv.events.provider.provider import Provider
from dlv.events.provider.sampling import Choice
from dlv.events.server.tb_provider import data_provider

RUNS = 10
POINTS = 1_000_000  # of each series
SAMPLE = 1000
ROUNDS = 15
CTX = context.RequestContext()
TAG = "train/loss/0"


def measure(cache: Path, work: Path, *, points: int = POINTS) -> dict[str, float]:
    """Milliseconds by name, medians; `cache` keeps the log, `work` is emptied by others."""
    log = cache / f"scalars-{points}.tfevents"
    if not log.exists():
        logs.scalars(log, points, 1)
    folder = logs.linked(work / "reads", log, RUNS)
    found: dict[str, float] = {}
    with CurveStore.open(work / "reads.db") as store, server(folder, points) as theirs:
        begun = time.process_time()
        ingest.scan(store, folder, experiment="")
        found["ingest, seconds of processor"] = time.process_time() - begun
        provider = Provider(store, cap=100 * points)
        ours = data_provider(lambda: provider, experiment="")
        asked = {name: _asked(each) for name, each in (("dlv", ours), ("rustboard", theirs))}
        check(asked["dlv"](), asked["rustboard"]())
        series = f"{RUNS} series x {SAMPLE}"
        found |= {f"{series}, {name}": ms for name, ms in alternately(asked).items()}
        found |= alternately(questions(provider, points))
    return found


def verdicts(found: dict[str, float]) -> list[Verdict]:
    series = f"{RUNS} series x {SAMPLE}"
    ratio = found[f"{series}, dlv"] / found[f"{series}, rustboard"]
    slowest = max(each for name, each in found.items() if name.startswith("zoom"))
    return [
        at_most(f"{series} of {RUNS} M: rustboard", ratio, 1, "x"),
        at_most("slowest zoom in 1 M points", slowest, 100, " ms"),
    ]


def questions(provider: Provider, points: int) -> dict[str, Callable[[], Any]]:
    """What TensorBoard cannot be asked."""
    one = "run-000"

    def read(choice: Choice) -> Callable[[], Any]:
        return lambda: provider.read_scalars(choice=choice, runs=[one])

    middle = (points // 2, points // 2 + points // 50)
    return {
        "zoom to 2 % of 1 series, 1000 points": read(Choice(steps=middle)),
        "zoom to 2 % of 1 series, envelope": read(Choice(steps=middle, sampling="envelope")),
        "zoom to half of 1 series, 1000 points": read(Choice(steps=(points // 4, points * 3 // 4))),
        "1 series, 1000 of all: preview": read(Choice()),
        "1 series, 999 of all: every chunk": read(Choice(points=999)),
        "1 series, envelope of all": read(Choice(sampling="envelope")),
        "1 series, the last 1000": read(Choice(last=1000)),
        "1 series, all points": read(Choice(points=None)),
        f"{RUNS} series, list": lambda: provider.list_scalars(),
        f"{RUNS} series, last points": lambda: provider.read_last_scalars(),
    }


def alternately(asked: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Median milliseconds; what is compared takes turns, so that noise meets both."""
    times: dict[str, list[float]] = {name: [] for name in asked}
    for turn in range(ROUNDS + 1):
        for name, ask in asked.items():
            begun = time.perf_counter()
            ask()
            if turn:  # the first one warms up
                times[name].append(1000 * (time.perf_counter() - begun))
    return {name: statistics.median(each) for name, each in times.items()}


def _asked(provider: Any) -> Callable[[], Any]:
    chosen = RunTagFilter(tags=[TAG])
    return lambda: provider.read_scalars(
        CTX, experiment_id="", plugin_name="scalars", downsample=SAMPLE, run_tag_filter=chosen
    )


def check(ours: Any, theirs: Any) -> None:
    """Both have answered with as much."""
    for found in (ours, theirs):
        sizes = [len(points) for tags in found.values() for points in tags.values()]
        assert sizes == [SAMPLE] * RUNS, sizes


@contextlib.contextmanager
def server(folder: Path, points: int) -> Iterator[Any]:
    """TensorBoard's data server, when it has read everything."""
    binary = server_ingester.get_server_binary()
    made = server_ingester.SubprocessServerDataIngester(
        binary,
        str(folder),
        reload_interval=0,
        channel_creds_type=grpc_util.ChannelCredsType.LOCAL,
        samples_per_plugin={"scalars": SAMPLE},
    )
    made.start()
    provider = made.data_provider
    while True:
        found = provider.list_scalars(CTX, experiment_id="", plugin_name="scalars")
        last = [each.max_step for tags in found.values() for each in tags.values()]
        if last == [points - 1] * RUNS:
            break
        time.sleep(0.1)
    yield provider
