"""Log directories as others write them: torch, tensorboardX, TensorBoard's own builders, by hand.

Event files made by hand are framed and put together with TensorBoard's protobufs, so that none of
our own code has part in them.
"""

from __future__ import annotations

import math
import struct
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

START = 1_700_000_000.0


def event(step: int = 0, wall: float | None = None, **content: Any) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event

    return Event(step=step, wall_time=START + step / 8 if wall is None else wall, **content)


def summary(step: int, *values: Any, wall: float | None = None) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    return event(step, wall, summary=Summary(value=list(values)))


def value(tag: str, **content: Any) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary.Value(tag=tag, **content)


def about(plugin: str, data_class: int = 0, content: bytes = b"", **texts: str) -> Any:
    from tensorboard.compat.proto.summary_pb2 import SummaryMetadata

    found = SummaryMetadata(data_class=data_class, **texts)
    found.plugin_data.plugin_name, found.plugin_data.content = plugin, content
    return found


def tensor(array: ArrayLike) -> Any:
    from tensorboard.util.tensor_util import make_tensor_proto

    return make_tensor_proto(array)


def simple(step: int, wall: float | None = None, **values: float) -> Any:
    made = [value(tag, simple_value=number) for tag, number in values.items()]
    return summary(step, *made, wall=wall)


def written(folder: Path, events: Iterable[Any], name: str = "0", *, version: bool = True) -> Path:
    """One event file; the names of several put them in order."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events.out.tfevents.170000000{name}.host"
    with path.open("wb") as file:
        writer = RecordWriter(file)
        for each in [event(file_version="brain.Event:2")] * version + list(events):
            writer.write(each.SerializeToString())
    return path


def start(step: int) -> Any:
    from tensorboard.compat.proto.event_pb2 import SessionLog

    return event(step, session_log=SessionLog(status=SessionLog.START))


def builders(root: Path) -> None:
    """TensorBoard's own makers of summaries, those that need no TensorFlow."""
    from tensorboard.plugins.custom_scalar import layout_pb2
    from tensorboard.plugins.custom_scalar import metadata as custom
    from tensorboard.plugins.histogram import summary_v2 as histogram
    from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
    from tensorboard.plugins.hparams import metadata as hparams_metadata
    from tensorboard.plugins.hparams import summary_v2 as hparams
    from tensorboard.plugins.pr_curve import metadata as pr_curve
    from tensorboard.plugins.scalar import summary_v2 as scalar
    from tensorboard.plugins.text import summary_v2 as text

    def of(made: Any, step: int) -> Any:
        return event(step, summary=made)

    random = np.random.default_rng(0)
    events = []
    for step in range(12):
        events += [
            of(scalar.scalar_pb("loss", 1 / (step + 1), "how *far* off"), step),
            of(histogram.histogram_pb("weights", random.normal(size=99) * step), step),
            of(histogram.histogram_pb("weights/few", random.normal(size=9), buckets=3), step),
            of(text.text_pb("note", f"at **{step}**"), step),
        ]
    events.append(of(histogram.histogram_pb("weights/none", np.array([])), 0))
    curve = {
        "metadata": pr_curve.create_summary_metadata("PR", "how it bends", 11),
        "tensor": tensor(random.random((6, 11)).astype(np.float32)),
    }
    events.append(summary(3, value("pr", **curve)))
    layout = layout_pb2.Layout(category=[layout_pb2.Category(title="both")])
    both = {
        "metadata": custom.create_summary_metadata(),
        "tensor": tensor(np.array(layout.SerializeToString(), object)),
    }
    events.append(summary(0, value("custom_scalars__config__", **both)))
    written(root / "made/v2", events)

    told = {"lr": 0.1, "layers": 3, "name": "sgd", "warm": True}
    names_of = [hparams.HParam(name) for name in told]
    experiment = hparams.hparams_config_pb(names_of, [hparams.Metric("loss")])
    written(root / "made", [of(experiment, 0)])
    ended = plugin_data_pb2.HParamsPluginData()
    ended.session_end_info.status = api_pb2.STATUS_SUCCESS
    end = {
        "metadata": hparams_metadata.create_summary_metadata(ended),
        "tensor": hparams_metadata.NULL_TENSOR,
    }
    session = [of(hparams.hparams_pb(told, start_time_secs=START), 0), simple(1, loss=0.5)]
    session.append(summary(0, value("_hparams_/session_end_info", **end)))
    written(root / "made/session", session)


def legacy(root: Path) -> None:
    """Summaries of the first years: plain values, histo, image, audio; graphs."""
    from tensorboard.compat.proto.graph_pb2 import GraphDef
    from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary

    def histo(limits: list[float], counts: list[float], **more: float) -> Any:
        return HistogramProto(bucket_limit=limits, bucket=counts, **more)

    image = Summary.Image(height=2, width=3, colorspace=3, encoded_image_string=b"\x89PNG bytes")
    audio = Summary.Audio(
        sample_rate=44100, num_channels=1, encoded_audio_string=b"RIFF", content_type="audio/wav"
    )
    huge = 1.7976931348623157e308
    graph = GraphDef()
    graph.node.add(name="x", op="Placeholder")
    graph.node.add(name="y", op="Relu", input=["x"]).attr["big"].s = b"z" * 2000
    events = [event(0, graph_def=graph.SerializeToString())]
    for step in range(5):
        span = {"min": -1.0, "max": 1.0, "num": 7.0, "sum": 3.0, "sum_squares": 5.0}
        events += [
            simple(step, plain=step / 3),
            summary(step, value("h", histo=histo([-2, -1, 0, 1, huge], [0, 3, 4, 0, 0], **span))),
            summary(step, value("h/empty", histo=histo([-1.0, 1.0], [0, 0]))),
            summary(step, value("h/nothing", histo=histo([], []))),
            summary(step, value("h/one", histo=histo([-huge, 0, huge], [0, 0, 2], min=5, max=5))),
            summary(step, value("pictures/image/0", image=image)),
            summary(step, value("sounds/audio/0", audio=audio)),
            summary(step, value("named", simple_value=step, metadata=about("scalars"))),
            summary(
                step,
                value("titled", simple_value=step, metadata=about("scalars", display_name="T")),
            ),
            summary(step, value("other", simple_value=step, metadata=about("mine"))),
            summary(step, value("a", simple_value=1), value("b", simple_value=2 * step)),
            summary(step),
        ]
    metadata = event(3).tagged_run_metadata
    metadata.tag, metadata.run_metadata = "step-3", b"\x0a\x00"
    events.append(event(3, tagged_run_metadata=metadata))
    written(root / "old", events)
    # Without its version: a file of the first format.
    written(root / "oldest", [simple(step, loss=step) for step in range(4)], version=False)


def classes(root: Path) -> None:
    """Plugins that nobody knows, data classes set and not set, what does not fit its class."""
    events = []
    for step in range(4):
        text = tensor(np.array([b"one", b"two"], object))
        audio = [[b"RIFF-a", b"first"], [b"RIFF-b", b"second"]]
        graph = {"metadata": about("graph_run_metadata"), "tensor": tensor(np.array(b"meta"))}
        mesh = {"metadata": about("mesh", content=b"\x08\x01")}
        bad = {"metadata": about("greetings", 1), "tensor": tensor([step, step])}
        images = {"metadata": about("images"), "tensor": tensor(np.array([b"3", b"2", b"\x89P"]))}
        events += [
            summary(step, value("tide", metadata=about("mine", 1), tensor=tensor(step / 2))),
            summary(step, value("whole", metadata=about("mine", 1), tensor=tensor(step))),
            summary(step, value("flag", metadata=about("mine", 1), tensor=tensor(step % 2 == 0))),
            summary(step, value("cube", metadata=about("mine", 2), tensor=tensor(np.eye(3)))),
            summary(step, value("texts", metadata=about("mine", 3), tensor=text)),
            summary(step, value("unclear", metadata=about("secret"), tensor=tensor(step))),
            summary(step, value("bad", **bad)),
            summary(step, value("run", **graph)),
            summary(step, value("body_VERTEX", **mesh, tensor=tensor(np.ones((1, 4, 3))))),
            summary(step, value("pictures", **images)),
            summary(step, value("sound", metadata=about("audio"), tensor=tensor(np.array(audio)))),
            summary(step, value("double", metadata=about("scalars"), tensor=tensor(math.pi))),
            summary(
                step,
                value("hparams", metadata=about("hparams", content=b"\x10\x01")),
                value("none", metadata=about("mine", 3), tensor=tensor(np.array([], object))),
            ),
            summary(step, value("half", metadata=about("scalars"), tensor=tensor(np.float16(0.1)))),
            summary(step, value("hollow", metadata=about("hollow", 2))),
        ]
    for at, plugin in enumerate(("text", "scalars", "text")):
        first = {"metadata": about(plugin, display_name=str(at)), "tensor": tensor(np.array(b"a"))}
        events.append(summary(at, value("first", **first)))
    for kind in (np.int8, np.uint8, np.int64, np.float32, np.float64, np.complex64, np.bool_):
        array = np.arange(6).reshape(2, 3).astype(kind)
        name = np.dtype(kind).name
        events.append(summary(1, value(name, metadata=about("mine", 2), tensor=tensor(array))))
        same = {"metadata": about("mine", 2), "tensor": tensor(array[:1, :1])}
        same["tensor"].tensor_shape.dim[1].size = 5
        events.append(summary(1, value(f"{name}/repeated", **same)))
    written(root / "classes", events)


def restarts(root: Path) -> None:
    def steps(*numbers: int, wall: float = 0.0) -> list[Any]:
        return [simple(step, START + wall + step, loss=step, other=-step) for step in numbers]

    both = [start(0), *steps(*range(10)), start(5), *steps(*range(5, 15), wall=100)]
    written(root / "restarts/marked", both)
    twice = [*both, start(8), *steps(8, 9, wall=200), start(2), *steps(2, 3, wall=300)]
    written(root / "restarts/often", twice)
    written(root / "restarts/silent", [*steps(*range(10)), *steps(*range(5, 12), wall=100)])
    unversioned = [*steps(*range(6)), simple(3, loss=33), simple(4, loss=44, other=4)]
    written(root / "restarts/unversioned", unversioned, version=False)
    written(root / "restarts/files", [start(0), *steps(*range(8))], "1")
    written(root / "restarts/files", [start(4), *steps(*range(4, 9), wall=50)], "2")
    written(root / "restarts/behind", [start(0), *steps(*range(6)), start(20), *steps(20, 21)])
    written(root / "restarts/back", [*steps(5, 4, 3, 9, 1, 7)])


def oddities(root: Path) -> None:
    """Duplicate steps, values that are no numbers, strange names, several files of a run."""
    image = about("images")
    pictures = [
        summary(
            step,
            value("p", metadata=image, tensor=tensor(np.array([b"1", b"1", bytes([at])]))),
            wall=START + at,
        )
        for at, step in enumerate([3, 1, 3, 2, 1])
    ]
    doubles = [simple(step, START + at, loss=at) for at, step in enumerate([1, 1, 2, 2, 2, 3])]
    written(root / "odd/twice", [*doubles, *pictures])
    special = [math.nan, math.inf, -math.inf, -0.0, 1e-45, 3.4e38]
    written(root / "odd/special", [simple(at, loss=number) for at, number in enumerate(special)])
    names = {"ünï/cödé": 1.0, "a b": 2.0, "": 3.0, "x" * 300: 4.0, "a/../b": 5.0, '"<&>': 6.0}
    written(root / "odd/names of/ünï", [simple(1, **names)])
    for name in ("1", "2", "3"):
        many = [simple(step, loss=step) for step in range(int(name) * 10, int(name) * 10 + 10)]
        written(root / "odd/files", many, name)
    far = [-5, 0, 2**40, 2**63 - 1]
    written(root / "odd/steps", [simple(step, START, loss=at) for at, step in enumerate(far)])
    written(root, [simple(0, root=1.0)])


def broken(root: Path) -> None:
    whole = [simple(step, loss=step) for step in range(40)]
    path = written(root / "broken/truncated", whole)
    path.write_bytes(path.read_bytes()[:-7])
    path = written(root / "broken/in a length", whole)
    path.write_bytes(path.read_bytes()[:1000][:-30])
    for name, at in (("body", 14), ("length", 8)):
        path = written(root / f"broken/crc of a {name}", whole)
        data = bytearray(path.read_bytes())
        frames, pos = [], 0
        while pos < len(data):
            frames.append(pos)
            pos += 16 + struct.unpack_from("<Q", data, pos)[0]
        data[frames[20] + at] ^= 0x40
        path.write_bytes(data)
    for name, content in (("garbage", b"\x07garbage" * 99), ("empty", b"")):
        folder = root / "broken" / name
        folder.mkdir(parents=True)
        (folder / "events.out.tfevents.1700000000.host").write_bytes(content)
    path = written(root / "broken/then whole", whole[:20], "1")
    path.write_bytes(path.read_bytes()[:-7])
    written(root / "broken/then whole", whole[20:], "2")


def by_torch(root: Path) -> None:
    """Everything that torch's writer has, in its old and new manner and in double precision."""
    torch = pytest.importorskip("torch")
    from torch.utils.tensorboard import SummaryWriter

    random = np.random.default_rng(1)
    manners: dict[str, dict[str, Any]] = {
        "old": {},
        "new": {"new_style": True},
        "double": {"double_precision": True},
        "both": {"new_style": True, "double_precision": True},
    }
    for name, manner in manners.items():
        with SummaryWriter(str(root / "torch" / name)) as writer:
            for step in range(30):
                writer.add_scalar("train/loss", 0.1 * step, step, walltime=START + step, **manner)
    with SummaryWriter(str(root / "torch/all")) as writer:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, of its tracer
            writer.add_graph(torch.nn.Sequential(torch.nn.Linear(3, 2)), torch.zeros(1, 3))
        for step in range(6):
            at: dict[str, Any] = {"global_step": step, "walltime": START + step}
            writer.add_scalars("several", {"one": step, "two": -step}, **at)
            writer.add_histogram("weights", random.normal(size=300) * (step + 1), **at)
            writer.add_image("picture", random.random((3, 4, 5)), **at)
            writer.add_images("pictures", random.random((2, 3, 4, 5)), **at)
            writer.add_audio("sound", torch.zeros(1, 64), sample_rate=8000, **at)
            writer.add_text("note", f"step {step}", **at)
            writer.add_pr_curve("pr", random.integers(2, size=50), random.random(50), **at)
            writer.add_tensor("tensor", torch.arange(4.0), **at)
            vertices = torch.rand(1, 4, 3)
            writer.add_mesh("body", vertices, faces=torch.tensor([[[0, 1, 2]]]), **at)
        writer.add_custom_scalars({"group": {"both": ["Multiline", ["several"]]}})
    for number, rate in enumerate((0.1, 0.01)):
        with SummaryWriter(str(root / f"torch/tuned/{number}")) as writer:
            writer.add_hparams({"lr": rate, "name": "sgd"}, {"hparam/loss": 1 / rate}, run_name=".")


def by_tensorboardx(root: Path) -> None:
    found = pytest.importorskip("tensorboardX")
    random = np.random.default_rng(2)
    with found.SummaryWriter(str(root / "x/all")) as writer:
        for step in range(6):
            at: dict[str, Any] = {"global_step": step, "walltime": START + step}
            writer.add_scalar("loss", step / 3, **at)
            writer.add_scalars("several", {"one": step, "two": -step}, **at)
            writer.add_histogram("weights", random.normal(size=300), **at)
            writer.add_image("picture", random.random((3, 4, 5)), **at)
            writer.add_text("note", f"step {step}", **at)
            writer.add_pr_curve("pr", random.integers(2, size=50), random.random(50), **at)
            writer.add_mesh("body", random.random((1, 4, 3)), **at)
        writer.add_hparams({"lr": 0.1}, {"hparam/loss": 2.0}, name="tuned")


SMALL: tuple[Callable[[Path], None], ...] = (builders, legacy, classes, restarts, oddities, broken)
LARGE: tuple[Callable[[Path], None], ...] = (by_torch, by_tensorboardx)
