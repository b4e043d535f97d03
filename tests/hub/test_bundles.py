"""Versions in one file: what comes back is what went in; a file that lies does no harm."""

from __future__ import annotations

import contextlib
import random
import zipfile
from pathlib import Path

import pytest

import dlv.hub.bundles as bundles
import dlv.upkeep.check as check
from dlv.errors import Conflict, DlvError, NotFound, RemoteError
from dlv.metadata import versions
from dlv.repository.handle import Repository
from tests.hub.test_push_pull import contents, other, repository  # noqa: F401


def test_there_and_back(lived: Repository, other: Repository, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "all.bundle"
    done = bundles.write(lived, ["lenet@4", "wide@2"], path, "Ada")
    assert done.sent
    found = bundles.read(other, path, "Bob")
    assert {v.id for v in found.versions} == {sent.version.id for sent in done.sent}
    for version in versions.all_versions(other.database):
        assert contents(other, version.id) == contents(lived, version.id)
    assert bundles.read(other, path, "Bob").versions == []
    assert check.check(other).faults == []
    assert list((other.cache / "remotes").iterdir()) == []
    with pytest.raises(Conflict, match="exists"):
        bundles.write(lived, ["lenet@4"], path, "Ada")
    bundles.write(lived, ["lenet@4"], path, "Ada", force=True)
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_file()) == ["all.bundle"]


def test_a_bundle_that_could_not_be_written_leaves_nothing(
    lived: Repository, tmp_path: Path
) -> None:
    with pytest.raises(NotFound):
        bundles.write(lived, ["nope"], tmp_path / "x.bundle", "Ada")
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == []


@pytest.mark.parametrize("seed", range(30))
def test_damaged_bundles(
    lived: Repository,
    other: Repository,  # noqa: F811
    tmp_path: Path,
    seed: int,
) -> None:
    """Cut, flipped, compressed, or with an entry left out: an error, and nothing becomes visible
    that is not whole."""
    path = tmp_path / "all.bundle"
    bundles.write(lived, ["lenet@4"], path, "Ada")
    rng = random.Random(seed)
    data = path.read_bytes()
    if seed % 3 == 0:
        path.write_bytes(data[: rng.randrange(len(data))])
    elif seed % 3 == 1:
        flipped = bytearray(data)
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
    else:
        with zipfile.ZipFile(path) as whole:
            entries = {info.filename: whole.read(info) for info in whole.infolist()}
        method = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
        left_out = rng.choice(sorted(entries)) if method == zipfile.ZIP_STORED else None
        with zipfile.ZipFile(path, "w", method) as changed:
            for name, content in entries.items():
                if name != left_out:
                    changed.writestr(name, content)
    with contextlib.suppress(DlvError):
        bundles.read(other, path, "Bob")
    for version in versions.all_versions(other.database):
        assert contents(other, version.id) == contents(lived, version.id)
    assert check.check(other).faults == []


def test_what_is_no_bundle(other: Repository, tmp_path: Path) -> None:  # noqa: F811
    text = tmp_path / "text.bundle"
    text.write_text("hello")
    with pytest.raises(RemoteError, match="is not a bundle"):
        bundles.read(other, text, "Bob")
    empty = tmp_path / "empty.bundle"
    zipfile.ZipFile(empty, "w").close()
    with pytest.raises(RemoteError, match="is not a bundle"):
        bundles.read(other, empty, "Bob")
    with pytest.raises(NotFound):
        bundles.read(other, tmp_path / "missing.bundle", "Bob")
