"""`show`: a version in short, and its parts as they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import dlv.versions.remove as remove
import dlv.versions.show as show
from dlv.canonical import hash_bytes
from dlv.errors import Damaged, NotFound, UsageError
from dlv.objects.manifest import decode
from dlv.repository.handle import Repository
from dlv.repository.revisions import Reference

Commit = Callable[..., str]
NODES = [
    {
        "name": "fc",
        "op": "FULL",
        "attrs": {"out": 3},
        "inputs": ["x"],
        "params": {"weight": "fc.weight", "bias": "fc.bias"},
    }
]
HELD = {
    step: {
        "fc.weight": np.arange(24, dtype=np.float32).reshape(3, 8) + step,
        "fc.bias": np.zeros(3, np.float32),
    }
    for step in (10, 20)
}
FILES = {"train.py": "print('é')\n", "log.csv": "step,loss\n1,2\n", "config.json": '{"lr": 0.5}'}


@pytest.fixture
def repository(tmp_path: Path, commit_model: Commit) -> Iterator[Repository]:
    made, _ = Repository.init(tmp_path)
    commit_model(made, "net", HELD, NODES, files=FILES, message="First\n\nwords")
    (tmp_path / "empty").write_text("")
    commit_model(made, "net", HELD, files={"train.py": "print(2)\n"})
    yield made
    made.close()


def found(repository: Repository, text: str) -> Reference:
    return show.find(repository, text)


def test_summary(repository: Repository) -> None:
    shown = show.show(repository, found(repository, "net@1"))
    assert shown.version.message == "First\n\nwords"
    assert (shown.head, shown.parents) == (False, [])
    assert shown.parameters == 24 + 3
    assert shown.raw == 2 * 4 * 27
    assert shown.stored > 0
    assert shown.network is not None
    assert shown.network["nodes"] == 1
    assert [(row.step, row.own) for row in shown.snapshots] == [(10, False), (20, True)]
    assert [m.name for m in shown.metrics] == ["loss"]
    child = show.show(repository, found(repository, "HEAD"))
    assert (child.head, [parent.label for parent in child.parents]) == (True, ["net@1"])


def test_removed_snapshots_do_not_count(repository: Repository) -> None:
    remove.remove(repository, ["net@1"], "Ada", steps="10")
    assert show.show(repository, found(repository, "net@1")).raw == 4 * 27


def test_a_snapshot(repository: Repository) -> None:
    shown = show.show(repository, found(repository, "net@1/10"))
    assert shown.snapshot is not None
    assert shown.snapshot.step == 10


def test_files_come_back_byte_for_byte(repository: Repository) -> None:
    for path, text in FILES.items():
        assert show.file(repository, found(repository, f"net@1:{path}")).data == text.encode()
    assert show.file(repository, found(repository, "net:train.py")).data == b"print(2)\n"


def test_files_that_are_not_there(repository: Repository) -> None:
    with pytest.raises(NotFound) as caught:
        show.file(repository, found(repository, "net@1:trian.py"))
    assert caught.value.did_you_mean == ["net@1:train.py"]
    with pytest.raises(UsageError, match="a weight"):
        show.file(repository, found(repository, "net@1:ckpt-10.safetensors"))


def test_a_damaged_file_is_not_shown(repository: Repository) -> None:
    reference = found(repository, "net@1:train.py")
    entry = next(e for e in repository.manifest(reference.version.id).files if e.path == "train.py")
    path = repository.files_git / "objects" / entry.git[:2] / entry.git[2:]
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:9])
    with pytest.raises(Damaged):
        show.file(repository, reference)


def test_the_manifest_is_what_the_id_says(repository: Repository) -> None:
    reference = found(repository, "net@1")
    data = show.manifest_bytes(repository, reference)
    assert hash_bytes(data) == reference.version.id
    assert decode(data) == repository.manifest(reference.version.id)


def test_a_matrix(repository: Repository) -> None:
    shown = show.matrix(repository, found(repository, "net@1/10"), "fc.weight")
    assert shown.excerpt is not None
    assert shown.excerpt.startswith("[[10. 11. 12. ...")
    assert (shown.matrix.shape, len(shown.chain)) == ((3, 8), 1)
    own = show.matrix(repository, found(repository, "net@1"), "fc.weight")
    assert own.matrix.hash != shown.matrix.hash
    with pytest.raises(NotFound) as caught:
        show.matrix(repository, found(repository, "net@1"), "fc.wieght")
    assert caught.value.did_you_mean == ["fc.weight"]
