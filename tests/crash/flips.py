"""A bit flips, and then gc runs: every acknowledged version is there, or fsck names it and a
repair brings it back.

For the databases a repair needs no copy: they are an index of files that are whole. Of the files
themselves a copy has what was lost; a repair without one must leave all that one with it needs.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dlv.cli as cli
import dlv.repository.revisions as revisions
from dlv.errors import DlvError
from dlv.metadata import versions
from dlv.metadata.curves import open_curves
from dlv.metadata.trials import Trials
from dlv.repository.handle import Repository

# Kind -> its files below .dlv. What a database knows is in files too, or was never acknowledged.
DATABASES = {
    "log": "dlv.db-wal",
    "shared memory": "dlv.db-shm",
    "database": "dlv.db",
    "curves": "live.db",
    "trials": "trials.db",
}
FILES = {
    "pack": "packs/*/*.pack",
    "manifest": "manifests/*/*.json",
    "fact": "facts/??/*.json",
    "file": "files.git/objects/??/*",
    "reference": "files.git/refs/versions/*",
    "format": "format.json",
}
KINDS = DATABASES | FILES
WITH_LOG = ("log", "shared memory")
GC = (["gc", "--grace", "0", "-y", "-q"], ["gc", "-y", "-q"])

Seen = dict[str, Any]


def look(folder: Path) -> Seen:
    """Versions that are not hidden, by id, and tags."""
    with Repository.find(folder) as repository:
        db = repository.database
        found = {row.id: row.label for row in versions.all_versions(db, ("live", "recovered"))}
        tag_hashes = "SELECT tag.name, hash FROM tag JOIN version ON version.id = version_id"
        return {"versions": found, "tags": dict(db.rows(tag_hashes))}


class Flips:
    """`lived` is copied; `commit` is the fixture `commit_model`."""

    def __init__(self, lived: Path, below: Path, commit: Callable[..., str]) -> None:
        self.folder = below / "work"
        self.plain, self.logged, self.copy = (below / name for name in ("plain", "logged", "copy"))
        shutil.copytree(lived, self.plain)
        Trials(self.plain / ".dlv" / "trials.db").close()
        open_curves(self.plain / ".dlv" / "live.db").close()
        with Repository.find(self.plain) as repository:
            assert repository.database  # somebody looks on, so that the log stays
            for turn in range(8):
                shape = (3, 3 + turn)
                commit(repository, f"late{turn % 2}", {"w": np.full(shape, turn, "f4")})
                if turn % 3 == 0:
                    revisions.set_tag(repository, f"t{turn}", f"late{turn % 2}", "Ada")
            shutil.copytree(self.plain, self.logged)
        shutil.copytree(self.plain, self.copy)
        assert not (self.plain / ".dlv" / "dlv.db-wal").exists()
        assert (self.logged / ".dlv" / "dlv.db-wal").stat().st_size > 100_000
        self.wanted = look(self.copy)

    def run(self, kind: str, count: int, seed: int = 0) -> Iterator[str]:
        """What was wrong."""
        lot = random.Random(f"{kind} {seed}")
        template = self.logged if kind in WITH_LOG else self.plain
        paths = sorted((template / ".dlv").glob(KINDS[kind]))
        for _ in range(count):
            path = lot.choice(paths)
            bit = self._bit(lot, kind, path.read_bytes())
            shutil.rmtree(self.folder, ignore_errors=True)
            shutil.copytree(template, self.folder)
            place = self.folder / path.relative_to(template)
            place.chmod(0o644)
            data = bytearray(place.read_bytes())
            data[bit // 8] ^= 1 << bit % 8
            place.write_bytes(data)
            try:
                problem = self._after(lot, kind)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            if problem is not None:
                yield f"{path.relative_to(template)}, bit {bit}: {problem}"

    @staticmethod
    def _bit(lot: random.Random, kind: str, data: bytes) -> int:
        at: int
        if kind == "log" and lot.random() < 0.3:  # a header, or what every frame begins with
            at = lot.choice([0, *range(32, len(data), 24 + 4096)]) + lot.randrange(24)
        elif lot.random() < 0.8:  # most of a small database is free space, all zeros
            at = lot.choice([n for n, byte in enumerate(data) if byte])
        else:
            at = lot.randrange(len(data))
        return min(at, len(data) - 1) * 8 + lot.randrange(8)

    def _after(self, lot: random.Random, kind: str) -> str | None:
        words = ["list", "-q"] if lot.random() < 0.3 else None
        if words is not None:  # whoever opens the catalogue puts its log away
            self._dlv(words)
        collected, _ = self._dlv(lot.choice(GC))
        if kind == "format" and collected:  # made again by whoever knows what it says
            shutil.copy(self.plain / ".dlv" / "format.json", self.folder / ".dlv")
        code, said = self._dlv(["fsck", "--json"])
        if code not in (0, 3, 6):
            return f"fsck exits with {code}: {said}"
        now = self._now()
        if code == 0 and now != self.wanted:
            return f"after gc (exit {collected}) fsck says ok, but tags: {now}"
        if now is not None and code == 6:
            hidden = self.wanted["versions"].keys() - now["versions"].keys()
            labels = [self.wanted["versions"][each] for each in hidden]
            unnamed = [label for label in labels if f'"{label}"' not in said]
            if unnamed and said.startswith("["):
                return f"fsck does not name {unnamed}: {said}"
        if code == 0:
            return None
        return self._repaired(lot, kind, collected)

    def _repaired(self, lot: random.Random, kind: str, collected: int) -> str | None:
        copied = ["fsck", "--repair", "--from", str(self.copy), "--json"]
        alone = ["fsck", "--repair", "--json"]
        if kind in FILES:
            if lot.random() < 0.5:
                self._dlv(alone)
            code, said = self._dlv(copied)
        else:
            code, said = self._dlv(lot.choice((alone, copied)))
        if code:
            return f"after gc (exit {collected}) a repair exits with {code}: {said}"
        now = self._now()
        if now != self.wanted:
            return f"after gc (exit {collected}) and a repair tags: {now}"
        code, said = self._dlv(["fsck", "--json"])
        return f"after a repair fsck says {said}" if code else None

    def _now(self) -> Seen | None:
        """None: the catalogue cannot be opened."""
        try:
            return look(self.folder)
        except DlvError:
            return None

    def _dlv(self, words: list[str]) -> tuple[int, str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.run(["-C", str(self.folder), *words])
        said = out.getvalue() or err.getvalue()
        if "Traceback" in err.getvalue() or "internal" in err.getvalue():
            raise AssertionError(f"{' '.join(words)} exits with {code}: {err.getvalue()}")
        if "--json" in words:
            document = json.loads(said)
            said = json.dumps(document.get("errors", document) if code else "")
        return code, said
