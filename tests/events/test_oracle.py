"""TensorBoard's own provider and ours, asked the same questions over the same logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

pytest.importorskip("tensorboard")

import dlv.curves.ingest as ingest
from dlv.curves.store import CurveStore
from dlv.events.provider.provider import Provider
from dlv.events.server.tb_provider import data_provider
from tests.events import foreign_logs, oracle
from tests.events.oracle import Question

# Where the two are meant to differ: the beginning of a question, and why.
EXPLAINED: dict[Question, str] = {
    ("plugins",): "a plugin stands there only if something of it can be listed: the interface says"
    " so, and TensorBoard's provider names it as a fault of its own",
    ("series", "secret"): "TensorBoard was asked as it names the plugin; its answer is empty",
    ("series", "tensor"): "the same; torch's add_tensor names a plugin that has no data class",
    ("series", "hollow"): "a value without content: TensorBoard fails for the whole plugin",
    ("list", "hollow", "tensors", "classes", "hollow"): "the same",
    ("read", "hollow", "tensors", "classes", "hollow"): "the same",
    ("list", "greetings", "scalars", "classes", "bad"): "of a series of which no point could be"
    " kept no last step",
    **{
        (call, "mine", "scalars", "classes", tag): "integers and truth values are no scalars: the"
        " series is flagged"
        for call in ("list", "read", "last")
        for tag in ("whole", "flag")
    },
}


def reason(question: Question) -> str | None:
    call = question[0].split()[0]
    asked = (call, *question[1:])
    return next((why for known, why in EXPLAINED.items() if asked[: len(known)] == known), None)


def compared(
    folder: Path, writers: Sequence[Callable[[Path], None]]
) -> tuple[oracle.Answers, list[Question]]:
    """TensorBoard's answers, and the questions that are answered in another way."""
    logs = folder / "logs"
    logs.mkdir()
    for write in writers:
        write(logs)
    theirs = oracle.answers(oracle.multiplexer(str(logs)))
    with CurveStore.open(folder / "live.db") as store:
        ingest.scan(store, logs, experiment="")
        provider = Provider(store)
        ours = oracle.answers(data_provider(lambda: provider, experiment=""))
    return theirs, list(oracle.differences(theirs, ours))


def test_equal_over_logs_made_by_hand(tmp_path: Path) -> None:
    theirs, found = compared(tmp_path, foreign_logs.SMALL)
    assert len(theirs) > 350, "too little was asked"
    assert [question for question in found if reason(question) is None] == []
    by_torch = EXPLAINED["series", "tensor"]
    assert {reason(question) for question in found} == {*EXPLAINED.values()} - {by_torch}


@pytest.mark.slow
def test_equal_over_logs_of_every_writer(tmp_path: Path) -> None:
    theirs, found = compared(tmp_path, foreign_logs.SMALL + foreign_logs.LARGE)
    assert len(theirs) > 500, "too little was asked"
    assert [question for question in found if reason(question) is None] == []
    assert {reason(question) for question in found} == {*EXPLAINED.values()}


@pytest.mark.parametrize("fault", ["a point less", "a bit", "a tag", "a blob"])
def test_a_difference_is_seen(tmp_path: Path, fault: str) -> None:
    """The oracle itself: answers that were tampered with are found."""
    logs = tmp_path / "logs"
    foreign_logs.builders(logs)
    foreign_logs.oddities(logs)
    theirs = oracle.answers(oracle.multiplexer(str(logs)))
    ours = dict(theirs)
    scalars = ("read all", "scalars", "scalars", "made/v2", "loss")
    blobs = ("read all", "images", "blob_sequences", "odd/twice", "p")
    if fault == "a point less":
        ours[scalars] = ours[scalars][:-1]
    elif fault == "a bit":
        step, wall, value = ours[scalars][0]
        nearly = float.fromhex(value) * (1 + 2**-50)
        ours[scalars] = [(step, wall, nearly.hex()), *ours[scalars][1:]]
    elif fault == "a tag":
        del ours[scalars]
    else:
        (step, wall, found), *rest = ours[blobs]
        ours[blobs] = [(step, wall, [*found[:-1], found[-1] + b"!"]), *rest]
    different = list(oracle.differences(theirs, ours))
    assert different == [blobs if fault == "a blob" else scalars]
    assert reason(different[0]) is None
