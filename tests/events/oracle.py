"""The same questions to two of TensorBoard's data providers, and where their answers differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Question = tuple[str, ...]
Answers = dict[Question, Any]

ALL = 1 << 40  # more points than any series has
KINDS = ("scalars", "tensors", "blob_sequences")


def multiplexer(folder: str) -> Any:
    """TensorBoard's own provider, in Python, with every point kept."""
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer

    found = plugin_event_multiplexer.EventMultiplexer(
        size_guidance={"tensors": 0}, tensor_size_guidance={}, max_reload_threads=1
    )
    found.AddRunsFromDirectory(folder)
    found.Reload()
    return data_provider.MultiplexerDataProvider(found, folder)


def answers(provider: Any, plugins: set[str] | None = None) -> Answers:
    """Every list, every read, every blob of every plugin; series by series."""
    from tensorboard import context
    from tensorboard.data.provider import RunTagFilter

    ctx = context.RequestContext()
    told: Answers = {}
    active = set(provider.list_plugins(ctx, experiment_id=""))
    told["plugins",] = sorted(active)
    for run in provider.list_runs(ctx, experiment_id=""):
        told["run", run.run_name] = (run.run_id, run.start_time)
    for plugin in sorted(active | (plugins or set())):
        asked: dict[str, Any] = {"experiment_id": "", "plugin_name": plugin}
        for kind in KINDS:
            listed = _tried(getattr(provider, f"list_{kind}"), ctx, **asked)
            if isinstance(listed, str):
                told["series", plugin, kind] = listed
                continue
            told["series", plugin, kind] = sorted((run, tag) for run, tag, _ in _each(listed))
            for run, tag, series in _each(listed):
                where = (plugin, kind, run, tag)
                one = {**asked, "run_tag_filter": RunTagFilter([run], [tag])}
                read = getattr(provider, f"read_{kind}")
                told["list", *where] = _listed(series)
                for name, k in (("read all", ALL), ("read 3", 3)):
                    found = _tried(read, ctx, downsample=k, **one)
                    told[name, *where] = _told(provider, ctx, found, run, tag)
                if kind == "scalars":
                    found = _tried(provider.read_last_scalars, ctx, **one)
                    told["last", *where] = _told(provider, ctx, found, run, tag)
    return told


def differences(one: Answers, other: Answers) -> Iterator[Question]:
    for question in sorted(one.keys() | other.keys()):
        if question not in one or question not in other or one[question] != other[question]:
            yield question


def _each(found: Any) -> Iterator[tuple[str, str, Any]]:
    for run, by_tag in found.items():
        for tag, each in by_tag.items():
            yield run, tag, each


def _tried(ask: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The answer, or the kind of error as text."""
    try:
        return ask(*args, **kwargs)
    except KeyError:
        return "KeyError"
    except ValueError:
        return "ValueError"


def _listed(series: Any) -> tuple[Any, ...]:
    return (
        series.max_step,
        series.max_wall_time,
        getattr(series, "max_length", None),
        series.plugin_content,
        series.description,
        series.display_name,
    )


def _told(provider: Any, ctx: Any, found: Any, run: str, tag: str) -> Any:
    """The points of a series by step, the only one, or the error."""
    if isinstance(found, str):
        return found
    data = found[run][tag]
    if not isinstance(data, list):
        return _point(provider, ctx, data)
    return [_point(provider, ctx, each) for each in sorted(data, key=lambda each: each.step)]


def _point(provider: Any, ctx: Any, each: Any) -> tuple[Any, ...]:
    if hasattr(each, "value"):
        return each.step, each.wall_time.hex(), float(each.value).hex()
    if hasattr(each, "numpy"):
        return each.step, each.wall_time.hex(), _array(each.numpy)
    blobs = [provider.read_blob(ctx, blob_key=blob.blob_key) for blob in each.values]
    return each.step, each.wall_time.hex(), [bytes(blob) for blob in blobs]


def _array(array: Any) -> tuple[Any, ...]:
    if array.dtype == np.object_:
        return "texts", array.shape, [bytes(each) for each in array.ravel()]
    return str(array.dtype), array.shape, array.tobytes()
