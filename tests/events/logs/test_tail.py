from __future__ import annotations

from pathlib import Path

import pytest

from dlv.events.logs.batches import Tail

tensorboardx = pytest.importorskip("tensorboardX")


def test_points_come_once_and_as_they_are_written(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    assert list(tail()) == []
    found: list[tuple[int, str, float]] = []
    expected = []
    with tensorboardx.SummaryWriter(str(tmp_path)) as writer:
        for step in range(1, 8):
            writer.add_scalar("loss", 1 / 2**step, step)
            expected.append((step, "loss", 1 / 2**step))
            if step % 2:
                writer.add_scalar("accuracy", step / 8, step)
                expected.append((step, "accuracy", step / 8))
            writer.flush()  # by a thread of its own: it may take a while
            found += tail()
    found += tail()
    assert sorted(found) == sorted(expected)
    assert list(tail()) == []


def test_folders_below_are_runs(tmp_path: Path) -> None:
    for name in ("train", "validation"):
        with tensorboardx.SummaryWriter(str(tmp_path / name)) as writer:
            writer.add_scalar("epoch_loss", 0.5, 1)
            writer.add_text("note", "no number", 1)
    assert list(Tail(tmp_path)()) == [
        (1, "train/epoch_loss", 0.5),
        (1, "validation/epoch_loss", 0.5),
    ]


def test_a_record_that_is_cut_off_waits(tmp_path: Path) -> None:
    with tensorboardx.SummaryWriter(str(tmp_path)) as writer:
        for step in (1, 2):
            writer.add_scalar("loss", step, step)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    tail = Tail(tmp_path)
    assert list(tail()) == [(1, "loss", 1.0)]
    path.write_bytes(whole)
    assert list(tail()) == [(2, "loss", 2.0)]


def test_what_are_no_event_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "broken.tfevents.1").write_bytes(b"nonsense" * 20)
    (tmp_path / "empty.tfevents.2").touch()
    tail = Tail(tmp_path)
    assert list(tail()) == list(tail()) == []
