"""Logs as trainings write them: the same tags again and again, with interruptions."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.events.event_files import Event, Summary, scalar, session, tensor, values, version

KINDS = ["old", "f4", "f8", "two", "many"]


@st.composite
def repeating(draw: st.DrawFn, rows: int = 90) -> list[Any]:
    """A few loops, one after the other, each over its own tags; now and then something else."""
    first = draw(st.sampled_from([[version()], [version()], []]))
    made: list[Any] = list(first)
    step = draw(st.sampled_from([0, 0, 100, 16300, 2**31 - 30]))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    for _ in range(draw(st.integers(1, 3))):
        tags = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=5))
        kinds = [draw(st.sampled_from(KINDS)) for _ in tags]
        odd = draw(st.sampled_from([0, 0, 7, 40]))
        back = draw(st.sampled_from([0, 0, 0, 25]))
        for row in range(draw(st.integers(1, rows))):
            made += [_event(kind, tag, step, random) for kind, tag in zip(kinds, tags, strict=True)]
            if odd and row % odd == odd - 1:
                made.append(
                    draw(st.sampled_from([_histogram(step), session(step), scalar("x", step, 1)]))
                )
            step += 1
            if back and row == back:
                step -= 10
    return made


def _event(kind: str, tag: str, step: int, random: np.random.Generator) -> Any:
    wall, number = float(random.random() * 1e9), float(np.float32(random.normal()))
    tag = f"{kind}/{tag * (1 + ord(tag) % 5)}"
    if kind == "old":
        return scalar(tag, step, number, wall)
    if kind == "f4":
        return values(step, tensor(tag, np.float32(number), "scalars"), wall=wall)
    if kind == "f8":
        made = Summary.Value(tag=tag)
        made.tensor.dtype = 2
        made.tensor.double_val.append(random.normal())
        made.metadata.plugin_data.plugin_name = "scalars"
        return values(step, made, wall=wall)
    names = [tag, tag] if kind == "two" else [f"{tag}/{i}" for i in range(4)]
    return Event(
        wall_time=wall,
        step=step,
        summary=Summary(
            value=[Summary.Value(tag=each, simple_value=random.random()) for each in names]
        ),
    )


def _histogram(step: int) -> Any:
    made = Summary.Value(tag="h")
    made.histo.bucket.extend([1.0, 2.0])
    made.histo.bucket_limit.extend([0.0, 1.0])
    return values(step, made)
