"""Reads packs by docs/format.md alone: numpy, zstandard and blake3, and nothing of dlv.

It is slow and trusts what it reads; only hashes are compared. What it cannot read because the
text does not say how is a fault of the text.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from blake3 import blake3

from tests.format.coders import Unreadable, Words, canonical, digest, need, unpack
from tests.format.encodings import Json, Matrix, Share, exponents, stretched, word_shape


@dataclass
class Stored:
    """One encoding of a matrix, and all that packs hold of it."""

    row: Json
    shares: list[Share] = field(default_factory=list)

    def versions(self) -> Iterator[dict[int | None, list[Share]]]:
        """Planes (None: side data) as each generation has them, the newest first."""
        for age in sorted({share.age for share in self.shares}, reverse=True) or [0]:
            found: dict[int | None, dict[tuple[int, int], Share]] = {}
            for share in self.shares:
                if share.age == age:
                    place = share.start, share.count
                    found.setdefault(share.chunk["plane"], {}).setdefault(place, share)
            yield {plane: [shares[at] for at in sorted(shares)] for plane, shares in found.items()}


class Packs:
    """All packs of a folder, by matrix and by object."""

    def __init__(self, paths: Sequence[Path], ages: Mapping[str, int] | None = None) -> None:
        self.encodings: dict[str, dict[bytes, Stored]] = {}
        self.objects: dict[tuple[str, str], list[Share]] = {}
        for path in paths:
            data = path.read_bytes()
            name = digest(data)
            need(ages is None or name == path.stem, "a pack has another name than its hash")
            self._read(data, (ages or {}).get(name, 0))

    @classmethod
    def of(cls, repository: Path) -> Packs:
        """Those of a repository, by generations: archives count more than commits."""
        facts = [json.loads(path.read_bytes()) for path in repository.glob(".dlv/facts/*/*.json")]
        archives = [fact for fact in facts if fact["kind"] == "archive"]
        archives.sort(key=lambda fact: str(fact["created"]))
        ages = {}
        if (on_their_way := repository / ".dlv" / "archive.json").exists():
            ages = dict.fromkeys(json.loads(on_their_way.read_bytes())["packs"], -1)
        for age, fact in enumerate(archives, 1):
            ages |= dict.fromkeys(fact["data"]["packs"], age)
        return cls(sorted(repository.glob(".dlv/packs/*/*.pack")), ages)

    def _read(self, data: bytes, age: int) -> None:
        offset, length, checksum, end = struct.unpack("<QQ32s8s", data[-56:])
        need(data[:8] == b"DLVPACK1" and end == b"DLVPEND1", "no pack")
        frame = data[offset : offset + length]
        need(blake3(frame).digest() == checksum, "a footer is corrupt")
        need(offset + length + 56 == len(data), "something lies behind the footer")
        footer = json.loads(unpack(frame))
        need(canonical(footer) == unpack(frame), "a footer is not canonical")
        need(footer["format"] == "dlv/pack/1", "another format")
        rows = []
        for row in footer["encodings"]:
            by_config = self.encodings.setdefault(row["matrix"], {})
            rows.append(by_config.setdefault(canonical(row), Stored(row)))
        at = 8
        for chunk in footer["chunks"]:
            need(chunk["offset"] == at and chunk["length"] > 0, "a gap between chunks")
            at += chunk["length"]
            stored = data[chunk["offset"] : at]
            need(digest(stored) == chunk["blake3"], "a chunk is corrupt")
            within = 0
            for owner, start, count in chunk["members"]:
                share = Share(chunk, stored, age, within, start, count)
                within += count
                if chunk["kind"] in ("plane", "side"):
                    rows[owner].shares.append(share)
                else:
                    self.objects.setdefault((chunk["kind"], owner), []).append(share)
            need(within == chunk["raw"], "members do not add up")
        need(at == offset, "chunks do not end where the footer begins")

    def object(self, kind: str, name: str) -> bytes:
        parts = {share.start: share for share in self.objects[kind, name]}
        whole = b"".join(parts[start].plain() for start in sorted(parts))
        need(digest(whole) == name, f"{kind} {name} is corrupt")
        return whole

    def matrix(self, name: str) -> bytes:
        """The bytes of a matrix; its name is checked."""
        return self._matrix(name, ())[0].tobytes()

    def _matrix(self, name: str, above: tuple[str, ...]) -> tuple[Words, dict[str, Words]]:
        """Words, and the exponent fields of this matrix and those below it."""
        need(name not in above and len(above) <= 64, "a chain comes back to where it began")
        need(name in self.encodings, f"matrix {name} is not stored")
        faults = []
        stored = list(self.encodings[name].values())
        stored.sort(key=lambda one: max([share.age for share in one.shares], default=0))
        for one in reversed(stored):
            for planes in one.versions():
                try:
                    return self._decoded(one.row, planes, above)
                except Unreadable as fault:
                    faults.append(str(fault))
        raise Unreadable(f"matrix {name}: {'; '.join(faults)}")

    def _decoded(
        self, row: Json, planes: dict[int | None, list[Share]], above: tuple[str, ...]
    ) -> tuple[Words, dict[str, Words]]:
        under: dict[str, Words] = {}
        base: Words | None = None
        delta = row["delta"]
        shape = word_shape(row["dtype"], row["shape"], planes)
        if delta is not None:
            base, under = self._matrix(delta["base"], (*above, row["matrix"]))
            theirs = next(iter(self.encodings[delta["base"]].values())).row
            need(theirs["dtype"] == row["dtype"], "a base of another dtype")
            same = theirs["shape"] == row["shape"]
            least = [min(pair) for pair in zip(theirs["shape"], row["shape"], strict=True)]
            need(delta["overlap"] == (None if same else least), "another overlap")
            if not same:
                old = word_shape(row["dtype"], theirs["shape"], {0: []}, len(base))
                base = stretched(base, old, shape)
                under = {key: stretched(held, old, shape) for key, held in under.items()}
        words = Matrix(self, row, shape, planes, base, under).words()
        head = canonical({"dtype": row["dtype"], "shape": row["shape"]})
        need(digest(head + b"\n" + words.tobytes()) == row["matrix"], "its name does not fit")
        return words, {**under, row["matrix"]: exponents(words, row["dtype"])}
