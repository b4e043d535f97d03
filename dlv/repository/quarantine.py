"""Objects taken out of use but not deleted yet: a folder for each time, with a list of origins.

The list is durable before the first object moves, so that a crash leaves nothing whose origin is
not known; only what has lain there for the whole grace is ever unlinked.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import dlv.disk.durable as durable
import dlv.objects.fact as fact_format
from dlv.canonical import WRITER, dumps, hash_bytes, timestamp
from dlv.dataclass import dataclass
from dlv.errors import DlvError, NotFound
from dlv.objects.fact import Fact
from dlv.repository.handle import Repository

FOLDER = "quarantine"
LIST = "origins.json"
FORMAT = "dlv/quarantine/1"
UNREAD, EMPTY = "its list cannot be read", "empty"
_REFERENCES = "files.git/refs/"
MARK = "restore.json"  # there while a folder of quarantine is brought back


@dataclass(frozen=True)
class Place:
    """One folder of quarantine: what was moved there, when and why."""

    path: Path
    created: str
    reason: str
    objects: tuple[tuple[str, int], ...]  # (path below .dlv, bytes)
    versions: tuple[Mapping[str, Any], ...] = ()
    facts: tuple[str, ...] = field(default=())

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.objects)

    def target(self, origin: str) -> Path:
        return self.path / origin


@dataclass(frozen=True)
class Restoring:
    """A folder of quarantine on its way back, and the facts that say so once all of it is there."""

    place: str
    facts: tuple[Fact, ...] = ()


def restoring(repository: Repository) -> Restoring | None:
    """What a restore that has not come to its end is bringing back; `gc` finishes it."""
    path = repository.path / MARK
    try:
        data = json.loads(path.read_bytes())
        facts = tuple(fact_format.decode_fact(text.encode()) for text in data["facts"])
        return Restoring(str(data["quarantine"]), facts)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise durable.storage_error("read", path, error) from error
    except (DlvError, ValueError, KeyError, TypeError, AttributeError):
        return Restoring("")  # it names nothing that could be brought back


def mark(repository: Repository, place: Place, facts: Sequence[Fact]) -> Restoring:
    """Before anything moves back: from now on the restore goes on, whatever comes between."""
    data = {"quarantine": place.id, "facts": [fact.encode().decode() for fact in facts]}
    durable.replace(repository.path / MARK, dumps(data), tmp_dir=repository.tmp)
    return Restoring(place.id, tuple(facts))


def unmark(repository: Repository) -> None:
    durable.remove(repository.path / MARK)


def origin_of(repository: Repository, path: Path) -> str:
    return path.relative_to(repository.path).as_posix()


def begin(
    repository: Repository,
    paths: Iterable[Path],
    reason: str,
    versions: Sequence[Mapping[str, Any]] = (),
) -> Place:
    """Write down what is going to be moved; nothing has moved when this returns."""
    objects = tuple(
        (origin_of(repository, path), path.stat().st_size) for path in paths if path.exists()
    )
    created = timestamp()
    stem = f"{created[:19].replace('-', '').replace(':', '')}-{hash_bytes(dumps(objects))[:6]}"
    path, count = repository.path / FOLDER / stem, 1
    while path.exists():
        count += 1
        path = repository.path / FOLDER / f"{stem}-{count}"
    place = Place(path, created, reason, objects, tuple(versions))
    durable.make_directory(path)
    _write(repository, place)
    return place


def _write(repository: Repository, place: Place) -> None:
    durable.replace(
        place.path / LIST,
        dumps(
            {
                "format": FORMAT,
                "writer": WRITER,
                "created": place.created,
                "reason": place.reason,
                "versions": list(place.versions),
                "objects": [{"path": path, "bytes": size} for path, size in place.objects],
            }
        ),
        tmp_dir=repository.tmp,
    )


def move_in(repository: Repository, place: Place, paths: Iterable[Path]) -> None:
    """Out of use, durably; what is not there any more was moved before."""
    origins = [origin_of(repository, path) for path in paths if path.exists()]
    for part in _references_first(origins):
        durable.move_all([(repository.path / name, place.target(name)) for name in part])


def _references_first(origins: Iterable[str]) -> tuple[list[str], list[str]]:
    """A reference of files.git and then all else: until it is gone for sure, its commit stays."""
    parts: tuple[list[str], list[str]] = ([], [])
    for name in origins:
        parts[not name.startswith(_REFERENCES)].append(name)
    return parts


def move_out(repository: Repository, place: Place) -> list[str]:
    """Back to where everything came from; what is there already stays."""
    back = [name for name, _ in place.objects if place.target(name).exists()]
    for part in reversed(_references_first(back)):
        pairs = [(place.target(name), repository.path / name) for name in part]
        durable.move_all([(source, target) for source, target in pairs if not target.exists()])
    return back


def places(repository: Repository) -> list[Place]:
    """All there are, oldest first; a folder without a readable list counts by its own time."""
    found = []
    for path in sorted((repository.path / FOLDER).glob("*")):
        if path.is_dir() and not path.is_symlink():
            found.append(_read(path))
    return sorted(found, key=lambda place: (place.created, place.id))


def _read(path: Path) -> Place:
    try:
        data = json.loads((path / LIST).read_bytes())
        objects = tuple((str(row["path"]), int(row["bytes"])) for row in data["objects"])
        if all(_inside(name) for name, _ in objects):
            rows = tuple(data["versions"])
            return Place(path, str(data["created"]), str(data["reason"]), objects, rows)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    held = [child for child in path.rglob("*") if child.is_file() and child.name != LIST]
    moved = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC)
    objects = tuple((child.relative_to(path).as_posix(), child.stat().st_size) for child in held)
    # A list is written before anything moves and goes last: without both, a kill came between.
    lost = bool(objects) or (path / LIST).exists()
    return Place(path, timestamp(moved), UNREAD if lost else EMPTY, objects)


def list_again(repository: Repository, path: Path) -> None:
    """A list for a folder that has lost its own: what lies there tells where it came from."""
    if (path / LIST).is_dir():
        (path / LIST).rename(path / f"{LIST}-{os.urandom(4).hex()}")
    _write(repository, replace(_read(path), reason="repair"))


def _inside(name: str) -> bool:
    parts = name.split("/")
    return bool(name) and not name.startswith("/") and not {"", ".", ".."} & set(parts)


def named(repository: Repository, wanted: str) -> Place:
    """The one of that id."""
    known = places(repository)
    for place in known:
        if place.id == wanted:
            return place
    raise NotFound(
        f"no quarantine `{wanted}`",
        why=f"{len(known)} exist" if known else "there is none",
        hint="dlv gc --dry-run lists them",
    )


def waiting(repository: Repository) -> dict[Path, Path]:
    """Where listed objects go that have not moved yet, or half: a crash came between."""
    found = {}
    for place in places(repository):
        for name, _ in place.objects:
            origin, target = repository.path / name, place.target(name)
            if origin.exists() and (not target.exists() or target.samefile(origin)):
                found[origin] = target
    return found


def discard(place: Place) -> None:
    """Unlink a whole folder, the list last: what is left after a crash can still be told."""
    for folder, folders, files in os.walk(place.path, topdown=False):
        here = Path(folder)
        for name in files:
            if here != place.path or name != LIST:
                durable.unlink(here / name)
        for name in folders:
            durable.unlink(here / name)
    if (place.path / LIST).exists():
        durable.unlink(place.path / LIST)
    durable.unlink(place.path)
    durable.fsync_directory(place.path.parent)


def find(repository: Repository, origin: str) -> list[Path]:
    """Copies of an object in quarantine, newest first; nobody has checked them."""
    found = [place.target(origin) for place in reversed(places(repository))]
    return [path for path in found if path.is_file()]


def drop(place: Place) -> None:
    """A list of which nothing has moved is of no use; errors are left to the next gc."""
    if not any(place.target(name).exists() for name, _ in place.objects):
        try:
            discard(place)
        except DlvError:
            return
