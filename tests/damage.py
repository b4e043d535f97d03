"""What can become of a repository: a function for each kind of damage, done to one of a release.

Each gives back the labels of the versions that it reaches as far as that can be told without dlv:
from the text of manifests, where everything that a version needs stands by its hash.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import struct
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard
from blake3 import blake3


class Place:
    """A project's folder, looked at without dlv."""

    def __init__(self, root: Path) -> None:
        self.dlv = root / ".dlv"

    def stored(self, kind: str) -> list[Path]:
        return sorted((self.dlv / kind).glob("??/*"))

    def sql(self, *statements: str) -> list[Any]:
        """The rows of the last one."""
        found: list[Any] = []
        with closing(sqlite3.connect(self.dlv / "dlv.db")) as db:
            db.execute("PRAGMA foreign_keys = OFF")
            for statement in statements:
                found = db.execute(statement).fetchall()
            db.commit()
        return found

    def holders(self, *needed: str) -> set[str]:
        """Labels of the versions whose manifest names one of these."""
        labels = {row[0]: row[1:] for row in self.sql("SELECT hash, name, number FROM version")}
        return {
            "{}@{}".format(*labels[path.stem])
            for path in self.stored("manifests")
            if labels.get(path.stem, (None, None))[1] is not None
            and any(name in path.read_text() for name in needed)
        }

    def in_pack(self, path: Path) -> set[str]:
        """Labels of the versions that need something of the pack."""
        rows = self.sql(
            "SELECT coalesce(matrix.hash, named_object.hash) FROM pack"
            " JOIN chunk ON chunk.pack_id = pack.id JOIN member ON member.chunk_id = chunk.id"
            " LEFT JOIN encoding ON encoding.id = member.encoding_id"
            " LEFT JOIN matrix ON matrix.id = encoding.matrix_id"
            " LEFT JOIN named_object ON named_object.id = member.object_id"
            f" WHERE pack.hash = '{path.stem}'"
        )
        return self.holders(*{row[0] for row in rows})

    def pack_of(self, name: str) -> Path:
        return self.dlv / "packs" / name[:2] / f"{name}.pack"

    @property
    def manifest(self) -> Path:
        """That of lenet@2."""
        ((digest,),) = self.sql("SELECT hash FROM version WHERE name = 'lenet' AND number = 2")
        return self.dlv / "manifests" / str(digest)[:2] / f"{digest}.json"

    @property
    def pack(self) -> Path:
        return max(self.stored("packs"), key=lambda path: path.stat().st_size)

    def fact(self, kind: str, **data: Any) -> Path:
        for path in self.stored("facts"):
            fact = json.loads(path.read_text())
            if fact["kind"] == kind and (not data or fact["data"] == data):
                return path
        raise AssertionError(kind)

    def blob(self, path: str) -> tuple[Path, str]:
        ((name,), *_) = self.sql(f"SELECT git FROM file WHERE path = '{path}' ORDER BY version_id")
        return self.dlv / "files.git" / "objects" / name[:2] / name[2:], name


Spoil = Callable[[Place], Collection[str]]


@dataclass(frozen=True)
class Damage:
    """`kinds`: those of the faults that fsck must list, none if it is harmless; `refused`: the
    exit code where the repository cannot even be opened."""

    spoil: Spoil
    kinds: frozenset[str]
    refused: int = 0


DAMAGES: dict[str, Damage] = {}


def damage(name: str, *kinds: str, refused: int = 0) -> Callable[[Spoil], Spoil]:
    def register(spoil: Spoil) -> Spoil:
        assert name not in DAMAGES, name
        DAMAGES[name] = Damage(spoil, frozenset(kinds), refused)
        return spoil

    return register


def flip(path: Path, at: int = -1) -> None:
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def replaced(path: Path, data: bytes) -> None:
    """Other bytes, under the name that is right for them: what a faulty program would leave."""
    path.unlink()
    digest = blake3(data).hexdigest()
    target = path.parent.parent / digest[:2] / (digest + path.suffix)
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(data)


# Packs


# What lies in the largest one.
LOST = ("pack", "tensor", "network", "skeleton", "series", "bounds")


@damage("a flipped bit in a chunk", "pack", "tensor")
def _(place: Place) -> Collection[str]:
    (row, *_) = place.sql(
        "SELECT pack.hash, chunk.offset, matrix.hash FROM chunk JOIN pack ON pack.id = pack_id"
        " JOIN member ON chunk_id = chunk.id JOIN encoding ON encoding.id = encoding_id"
        " JOIN matrix ON matrix.id = encoding.matrix_id"
        " JOIN snapshot_matrix USING (matrix_id) ORDER BY chunk.length DESC"
    )
    flip(place.pack_of(row[0]), row[1])
    return place.holders(row[2])


def _lost(name: str, spoil: Callable[[Path], object]) -> None:
    """A pack of which nothing can be read."""

    @damage(name, *LOST)
    def _(place: Place) -> Collection[str]:
        path = place.pack
        reached = place.in_pack(path)
        spoil(path)
        return reached


def _made_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _linked(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


_lost("a pack cut off", lambda path: path.write_bytes(path.read_bytes()[:100]))
_lost("an empty pack", lambda path: path.write_bytes(b""))
_lost("a missing pack", lambda path: path.unlink())
_lost("a pack of zeros", lambda path: path.write_bytes(bytes(path.stat().st_size)))
_lost("a folder in the place of a pack", _made_folder)
_lost("a pack that is a link to nothing", _linked)


@damage("the footer of a pack", "pack")
def _(place: Place) -> Collection[str]:
    flip(place.pack)
    return ()


@damage("bytes behind a pack", "pack")
def _(place: Place) -> Collection[str]:
    place.pack.write_bytes(place.pack.read_bytes() + b"more")
    return ()


@damage("the base of differences is missing", *LOST)
def _(place: Place) -> Collection[str]:
    """All that is stored as a difference to it goes with it."""
    (row, *_) = place.sql(
        "SELECT pack.hash, base.hash, matrix.hash FROM encoding"
        " JOIN matrix ON matrix.id = encoding.matrix_id"
        " JOIN matrix base ON base.hash = encoding.base_hash"
        " JOIN encoding of ON of.matrix_id = base.id JOIN member ON member.encoding_id = of.id"
        " JOIN chunk ON chunk.id = chunk_id JOIN pack ON pack.id = chunk.pack_id"
    )
    place.pack_of(row[0]).unlink()
    return place.holders(row[1], row[2])


@damage("a circle of differences in a pack too", "tensor")
def _(place: Place) -> Collection[str]:
    """Every checksum is right, and the catalogue says the same: what a faulty archive would do."""
    (row, *_) = place.sql(
        "SELECT pack.hash, matrix.hash, base_hash FROM encoding"
        " JOIN matrix ON matrix.id = matrix_id JOIN member ON encoding_id = encoding.id"
        " JOIN chunk ON chunk.id = chunk_id JOIN pack ON pack.id = pack_id"
        " WHERE base_hash IS NOT NULL"
    )
    name, matrix, base = row
    path = place.pack_of(name)
    data = path.read_bytes()
    start, length = struct.unpack("<QQ", data[-56:-40])
    footer = json.loads(zstandard.decompress(data[start : start + length]))
    (encoding,) = (each for each in footer["encodings"] if each["matrix"] == matrix)
    assert encoding["delta"]["base"] == base
    encoding["delta"]["base"] = matrix
    text = json.dumps(footer, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    frame = zstandard.compress(text.encode())
    sealed = struct.pack("<QQ", start, len(frame)) + blake3(frame).digest() + b"DLVPEND1"
    fresh = data[:start] + frame + sealed
    replaced(path, fresh)
    place.sql(
        f"UPDATE pack SET hash = '{blake3(fresh).hexdigest()}', bytes = {len(fresh)}"
        f" WHERE hash = '{name}'",
        f"UPDATE encoding SET base_hash = '{matrix}',"
        f" delta = replace(delta, '{base}', '{matrix}') WHERE base_hash = '{base}'"
        f" AND matrix_id = (SELECT id FROM matrix WHERE hash = '{matrix}')",
    )
    return place.holders(matrix)


# Manifests and facts


def _manifest(name: str, spoil: Callable[[Path], object]) -> None:
    @damage(name, "manifest")
    def _(place: Place) -> Collection[str]:
        spoil(place.manifest)
        return {"lenet@2"}


_manifest("a flipped bit in a manifest", lambda path: flip(path, 40))
_manifest("a missing manifest", lambda path: path.unlink())
_manifest("an empty manifest", lambda path: path.write_bytes(b""))
_manifest(
    "a manifest that is not canonical",
    lambda path: path.write_bytes(json.dumps(json.loads(path.read_bytes()), indent=1).encode()),
)
_manifest(
    "a manifest with another message, under its own name",
    lambda path: replaced(path, path.read_bytes().replace(b'"second"', b'"altered"')),
)


@damage("a flipped bit in a fact", "fact")
def _(place: Place) -> Collection[str]:
    flip(place.fact("number", name="wide", number=3), 30)
    return {"wide@3"}


@damage("a missing fact", "fact")
def _(place: Place) -> Collection[str]:
    place.fact("tag").unlink()
    return ()


@damage("two versions of one number", "fact")
def _(place: Place) -> Collection[str]:
    path = place.fact("number", name="wide", number=3)
    replaced(path, path.read_bytes().replace(b'"number":3', b'"number":1'))
    return {"wide@3"}


# The catalogue


def _row(name: str, *statements: str) -> None:
    @damage(name, "database")
    def _(place: Place) -> Collection[str]:
        place.sql(*statements)
        return ()


_row("a row too few", "DELETE FROM hyperparameter WHERE key = 'lr'")
_row("a row too many", "INSERT INTO tag SELECT 'never', id FROM version LIMIT 1")
_row("a row that is another", "UPDATE version SET message = 'other' WHERE name = 'wide'")
_row("a reference to no row", "UPDATE snapshot SET version_id = 999 WHERE id = 1")
_row("a summary that is another", "UPDATE metric SET last = 9")
_row(
    "a circle of differences",
    "UPDATE encoding SET base_hash = (SELECT hash FROM matrix WHERE id = matrix_id)"
    " WHERE base_hash IS NOT NULL",
)
_row("an index that is gone", "DROP INDEX version_time")
_row("a table that is gone", "DROP TABLE hyperparameter")
_row("HEAD of no version", "UPDATE state SET value = 'x' WHERE key = 'HEAD'")


def _catalogue(name: str, spoil: Callable[[Path], object]) -> None:
    @damage(name, refused=6)
    def _(place: Place) -> Collection[str]:
        for path in place.dlv.glob("dlv.db-*"):
            path.unlink()
        spoil(place.dlv / "dlv.db")
        return ()


_catalogue("no catalogue", lambda path: path.unlink())
_catalogue("an empty catalogue", lambda path: path.write_bytes(b""))
_catalogue("a catalogue of garbage", lambda path: path.write_bytes(b"hello world" * 1000))
_catalogue(
    "a catalogue cut in half",
    lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 8192 * 4096]),
)


@damage("a catalogue with pages of zeros", "database")
def _(place: Place) -> Collection[str]:
    path = place.dlv / "dlv.db"
    data = bytearray(path.read_bytes())
    for at in range(40 * 4096, len(data) - 4096, 5 * 4096):
        data[at : at + 4096] = bytes(4096)
    path.write_bytes(data)
    return ()


# files.git


@damage("a flipped bit in a file", "file")
def _(place: Place) -> Collection[str]:
    path, name = place.blob("test.npz")
    flip(path, 200)
    return place.holders(name)


@damage("a missing file", "file")
def _(place: Place) -> Collection[str]:
    path, name = place.blob("test.npz")
    path.unlink()
    return place.holders(name)


@damage("a file of garbage", "file")
def _(place: Place) -> Collection[str]:
    path, name = place.blob("src/model.py")
    path.chmod(0o644)
    path.write_bytes(b"garbage")
    return place.holders(name)


@damage("the reference of a version", "files.git")
def _(place: Place) -> Collection[str]:
    path = min((place.dlv / "files.git" / "refs" / "versions").iterdir())
    path.write_text("0" * 40 + "\n")
    return ()


@damage("no HEAD in files.git")
def _(place: Place) -> Collection[str]:
    (place.dlv / "files.git" / "HEAD").unlink()
    return ()


@damage("no files.git", "file", "tree")
def _(place: Place) -> Collection[str]:
    shutil.rmtree(place.dlv / "files.git")
    return {"lenet@1", "lenet@2", "lenet@4", "wide@1", "wide@2", "wide@3", "tuned@1"}


# What is derived, in flight, or a setting


@damage("live.db of garbage")
def _(place: Place) -> Collection[str]:
    (place.dlv / "live.db").write_bytes(b"garbage" * 1000)
    return ()


@damage("trials.db of garbage", "trials")
def _(place: Place) -> Collection[str]:
    for path in place.dlv.glob("trials.db*"):
        path.unlink()
    (place.dlv / "trials.db").write_bytes(b"garbage" * 1000)
    return ()


@damage("lock files of a git that was killed")
def _(place: Place) -> Collection[str]:
    for name in ("HEAD.lock", "config.lock", "refs/versions/x.lock", "objects/tmp_obj_1"):
        (place.dlv / "files.git" / name).write_bytes(b"")
    return ()


@damage("leftovers in tmp")
def _(place: Place) -> Collection[str]:
    (place.dlv / "tmp" / "w-1-2").write_bytes(b"half a pack")
    return ()


@damage("an empty folder of packs")
def _(place: Place) -> Collection[str]:
    (place.dlv / "packs" / "00").mkdir()
    return ()


@damage("no tmp and no cache")
def _(place: Place) -> Collection[str]:
    for name in ("tmp", "cache"):
        shutil.rmtree(place.dlv / name)
    return ()


@damage("a list of quarantine that is broken", "quarantine")
def _(place: Place) -> Collection[str]:
    for path in place.dlv.glob("quarantine/*/origins.json"):
        path.write_text("{")
    return ()


@damage("no format.json", "format")
def _(place: Place) -> Collection[str]:
    (place.dlv / "format.json").unlink()
    return ()


@damage("format.json of garbage", "format")
def _(place: Place) -> Collection[str]:
    (place.dlv / "format.json").write_text('{"format": ')
    return ()


@damage("a format that cannot be", "format")
def _(place: Place) -> Collection[str]:
    (place.dlv / "format.json").write_text('{"format": "x"}')
    return ()


@damage("a newer format", refused=3)
def _(place: Place) -> Collection[str]:
    (place.dlv / "format.json").write_text('{"format": 2, "writer": "dlv 7"}')
    return ()


@damage("settings that cannot be read", "settings")
def _(place: Place) -> Collection[str]:
    (place.dlv / "config.toml").write_text("= not toml")
    return ()
