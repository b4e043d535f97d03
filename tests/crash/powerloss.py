"""What a disk may hold after the power was cut: images made from a record of calls.

Two models. `journal`, as ext4: changes of names persist in their order, up to some point; any
fsync forces all earlier ones. `posix`: a name persists for sure only if its folder was synced
after it, and each other change does or does not. In both, what was written to a file since its
last fsync is there or not in pieces of 4 KiB, and where the file had not reached before a piece
may be zeros. Data belongs to files, not to names, and follows them through renames.
"""

from __future__ import annotations

import copy
import os
import random
import shutil
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PIECE = 4096
MODELS = ("journal", "posix")
_HEAD = struct.Struct("<IIQQc7x")
_VOLATILE = ("-shm",)  # memory that processes share: no disk ever needs it


@dataclass(frozen=True)
class Call:
    """One call that was done: 'w' a write, 'F' and 'D' syncs, 'A' output, else names and sizes."""

    kind: str
    inode: int
    number: int
    one: bytes
    two: bytes


def calls(record: Path) -> list[Call]:
    data = record.read_bytes()
    found, at = [], 0
    while at < len(data):
        size, first, inode, number, kind = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        body = data[at : at + size]
        assert len(body) == size
        found.append(Call(kind.decode(), inode, number, body[:first], body[first:]))
        at += size
    return found


@dataclass
class File:
    """A file: what is on the disk for sure, and what was done to it since."""

    synced: bytes = b""
    since: list[tuple[str, int, bytes]] = field(default_factory=list)

    def write(self, kind: str, offset: int, data: bytes) -> None:
        self.since.append((kind, offset, data))

    def sync(self) -> None:
        self.synced, self.since = self.whole(), []

    def whole(self) -> bytes:
        """As every process saw it."""
        content = bytearray(self.synced)
        for kind, offset, data in self.since:
            _change(content, kind, offset, data)
        return bytes(content)

    def survivor(self, lot: random.Random, way: str) -> bytes:
        """What may be read of it after the cut. `way`: all of it, none, some pieces, or by lot."""
        if way == "mixed":
            way = lot.choice(("kept", "dropped", "pieces"))
        if not self.since or way == "kept":
            return self.whole()
        if way == "dropped":
            return self.synced
        content = bytearray(self.synced)
        for kind, offset, data in self.since:
            if kind != "w":
                if lot.random() < 0.5:
                    _change(content, kind, offset, data)
                continue
            for start in range(0, len(data), PIECE):
                piece, place = data[start : start + PIECE], offset + start
                chance = lot.random()
                if chance < 0.4:
                    _change(content, "w", place, piece)
                elif chance < 0.6 and place >= len(self.synced):
                    _change(content, "w", place, bytes(len(piece)))  # allocated, never written
        return bytes(content)


def _change(content: bytearray, kind: str, offset: int, data: bytes) -> None:
    if kind == "t":  # cut or filled up to a size
        del content[offset:]
        content.extend(bytes(offset - len(content)))
    elif kind == "a":  # at least so large
        content.extend(bytes(max(0, offset - len(content))))
    else:
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + len(data)] = data


@dataclass
class Folder:
    """A folder's names: those that are there for sure, and each change since, in order."""

    synced: dict[str, int] = field(default_factory=dict)
    since: list[tuple[int, str, int | None]] = field(default_factory=list)  # when, name, inode

    def now(self) -> dict[str, int]:
        return self.until(lambda _: True)

    def until(self, there: object) -> dict[str, int]:
        names = dict(self.synced)
        assert callable(there)
        for when, name, inode in self.since:
            if there(when):
                if inode is None:
                    names.pop(name, None)
                else:
                    names[name] = inode
        return names

    def some(self, lot: random.Random) -> dict[str, int]:
        """Each name as it was at the last sync or at any moment since."""
        names = dict(self.synced)
        changed = dict.fromkeys(name for _, name, _ in self.since)
        for name in changed:
            states = [self.synced.get(name), *(i for _, n, i in self.since if n == name)]
            state = lot.choice(states)
            names.pop(name, None)
            if state is not None:
                names[name] = state
        return names


class Disk:
    """A tree of files, changed call by call. Numbers of inodes may come again: objects do not."""

    def __init__(self, root: Path) -> None:
        self.root = os.fsencode(root)
        self.files: dict[int, File] = {}
        self.folders: dict[int, Folder] = {}
        self.links: dict[int, bytes] = {}
        self._object: dict[int, int] = {}  # inode -> object
        self._count = 0
        self.top = self._load(root)
        self.clock = 0
        self.forced = 0  # all changes of names before it are on the disk (journal)

    def _new(self, inode: int) -> int:
        self._count += 1
        self._object[inode] = self._count
        return self._count

    def _load(self, path: Path) -> int:
        """What is there at the beginning: all of it on the disk."""
        status = path.lstat()
        if status.st_ino in self._object and not path.is_dir():
            return self._object[status.st_ino]
        made = self._new(status.st_ino)
        if path.is_symlink():
            self.links[made] = os.fsencode(path.readlink())
        elif path.is_dir():
            names = {child.name: self._load(child) for child in sorted(path.iterdir())}
            self.folders[made] = Folder(names)
        else:
            self.files[made] = File(path.read_bytes())
        return made

    def _place(self, path: bytes) -> tuple[Folder, str] | None:
        """The folder and the name of a path; None outside the tree."""
        path = os.path.normpath(path)
        if not path.startswith(self.root + b"/"):
            return None
        *above, name = os.fsdecode(path[len(self.root) + 1 :]).split("/")
        here = self.top
        for step in above:
            here = self.folders[here].now()[step]
        return self.folders[here], name

    def _name(self, path: bytes, made: int | None) -> None:
        place = self._place(path)
        if place is not None:
            place[0].since.append((self.clock, place[1], made))

    def _at(self, path: bytes) -> int | None:
        place = self._place(path)
        return None if place is None else place[0].now().get(place[1])

    def play(self, call: Call) -> None:
        self.clock += 1
        match call.kind:
            case "w" | "t" | "a":
                held = self.files.get(self._object.get(call.inode, 0))
                if held is not None:
                    held.write(call.kind, call.number, call.one)
            case "F":
                held = self.files.get(self._object.get(call.inode, 0))
                if held is not None:
                    held.sync()
                self.forced = self.clock
            case "D":
                folder = self.folders.get(self._object.get(call.inode, 0))
                if folder is not None:
                    folder.synced, folder.since = folder.now(), []
                self.forced = self.clock
            case "o":
                made = self._new(call.inode)
                self.files[made] = File()
                self._name(call.one, made)
            case "m":
                made = self._new(call.inode)
                self.folders[made] = Folder()
                self._name(call.one, made)
            case "y":
                made = self._new(call.inode)
                self.links[made] = call.two
                self._name(call.one, made)
            case "l":
                self._name(call.two, self._at(call.one))
            case "r":
                moved = self._at(call.one)
                self._name(call.two, moved)
                self._name(call.one, None)
            case "u":
                self._name(call.one, None)

    def write(self, target: Path, model: str, lot: random.Random) -> None:
        """One image of what may be there if the power is cut now."""
        way = lot.choice(("kept", "dropped", "pieces", "mixed"))
        if model == "journal":
            last = lot.choice((self.forced, self.clock, lot.randint(self.forced, self.clock)))
            self._write(self.top, target, lot, way, lambda f: f.until(lambda when: when <= last))
        else:
            strict = lot.choice((Folder.now, lambda f: dict(f.synced), None, None))
            names = strict or (lambda f: f.some(lot))
            self._write(self.top, target, lot, way, names)

    def _write(self, made: int, path: Path, lot: random.Random, way: str, names: object) -> None:
        assert callable(names)
        if made in self.folders:
            path.mkdir()
            for name, child in sorted(names(self.folders[made]).items()):
                if not name.endswith(_VOLATILE):
                    self._write(child, path / name, lot, way, names)
        elif made in self.links:
            os.symlink(self.links[made], os.fsencode(path))
        else:
            path.write_bytes(self.files[made].survivor(lot, way))


def difference(start: Disk, played: Sequence[Call], root: Path) -> list[str]:
    """Whether the record tells all: what it leads to is what stands below `root`."""
    disk = copy.deepcopy(start)
    for call in played:
        disk.play(call)
    found: dict[str, bytes | None] = {}
    waiting = [("", disk.top)]
    while waiting:
        where, made = waiting.pop()
        if made in disk.folders:
            found[where] = None
            waiting += [(f"{where}/{n}", c) for n, c in disk.folders[made].now().items()]
        else:
            found[where] = disk.links[made] if made in disk.links else disk.files[made].whole()
    real = {"": None, **{f"/{path.relative_to(root)}": _content(path) for path in root.rglob("*")}}
    names = {name for name in found.keys() | real.keys() if not name.endswith(_VOLATILE)}
    absent = object()
    return [
        f"the record is not whole: {name}"
        for name in sorted(names)
        if found.get(name, absent) != real.get(name, absent)
    ]


def _content(path: Path) -> bytes | None:
    if path.is_symlink():
        return os.fsencode(path.readlink())
    return None if path.is_dir() else path.read_bytes()


def images(
    start: Disk, played: Sequence[Call], target: Path, count: int, seed: int
) -> Iterator[tuple[str, int, int]]:
    """`target` holds an image after each step: the model, behind which call, bytes of output by
    then. A third of the cuts come right behind an acknowledgement, or at the end."""
    lot = random.Random(seed)
    spoken = [place + 1 for place, call in enumerate(played) if call.kind == "A"] or [len(played)]
    cuts = sorted(
        (lot.choice([*spoken, len(played)]) if place % 3 == 0 else lot.randint(0, len(played)))
        for place in range(count)
    )
    at = output = 0
    for place, cut in enumerate(cuts):
        for call in played[at:cut]:
            output += call.number if call.kind == "A" else 0
            start.play(call)
        at = cut
        model = MODELS[place % len(MODELS)]
        shutil.rmtree(target, ignore_errors=True)
        start.write(target, model, lot)
        yield model, cut, output
