"""The small files and folders of a repository: those that keep commands from their work, and others
in their place. Nothing of them is true; what stands there instead is set aside, never deleted."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import dlv.disk.durable as durable
import dlv.disk.locks as locks
import dlv.repository.handle as repositories
import dlv.repository.quarantine as quarantine
from dlv.config import Config
from dlv.curves.store import LIVE
from dlv.errors import DlvError, NewerFormat
from dlv.objects.fact import decode_fact
from dlv.objects.manifest import decode
from dlv.recovery.superseded import INTENT
from dlv.repository.ballast import NAME as BALLAST
from dlv.repository.handle import GC_LOCK, Repository

CONFIG, TRIALS = "config.toml", "trials.db"
LOCKS = (GC_LOCK, "archive.lock", "files.lock", locks.GATE, f"{LIVE}.lock")
FOLDERS = ("tmp", "quarantine", "cache", "packs", "manifests", "facts", "files.git", "trials")
DATABASES = ("dlv.db", LIVE, TRIALS)
NO_FOLDER, NO_FILE = "it is not a folder", "it is not a file"
# Without these nothing can be set aside.
_FIRST = ("tmp", "quarantine", *LOCKS)


class Wrong(NamedTuple):
    kind: str
    name: str  # below .dlv
    why: str


def faults(repository: Repository) -> list[Wrong]:
    """What is wrong with them. Raises NewerFormat where the repository is another dlv's."""
    found = list(_places(repository.path))
    known = {each.name for each in found}
    if repositories.NAME not in known:
        why = repositories.format_fault(repository.path)
        found += [] if why is None else [Wrong("format", repositories.NAME, why)]
    if CONFIG not in known:
        found += _settings(repository)
    if INTENT not in known and _no_json(repository.path / INTENT):
        found.append(Wrong("file", INTENT, "it is not what archive and gc write there"))
    if "quarantine" not in known:
        found += [
            Wrong("quarantine", f"quarantine/{place.id}/{quarantine.LIST}", place.reason)
            for place in quarantine.places(repository)
            if place.reason == quarantine.UNREAD
        ]
    return found


def _places(path: Path) -> Iterator[Wrong]:
    """Yield entries that are of the wrong kind or unreadable."""
    kinds = dict.fromkeys(FOLDERS, "folder") | dict.fromkeys((*DATABASES, INTENT, BALLAST), "file")
    kinds |= dict.fromkeys(LOCKS, "lock")
    kinds |= {CONFIG: "settings", repositories.NAME: "format"}
    for name, kind in kinds.items():
        try:
            mode = (path / name).stat().st_mode
        except OSError:
            if (path / name).is_symlink() and name != CONFIG:
                yield Wrong(kind, name, "it is a broken link")
            continue
        if (kind == "folder") != stat.S_ISDIR(mode) or not (kind == "folder" or stat.S_ISREG(mode)):
            yield Wrong(kind, name, NO_FOLDER if kind == "folder" else NO_FILE)
        elif not mode & stat.S_IRUSR:
            why = f"its mode is {stat.S_IMODE(mode):03o}: not even who owns it may read it"
            yield Wrong(kind, name, why)


def _settings(repository: Repository) -> list[Wrong]:
    nowhere = Path(os.devnull)
    try:
        # Of this file alone.
        Config.load(repository.config_file, {"XDG_CONFIG_HOME": os.devnull}, system=nowhere)
    except DlvError as error:
        why = error.message if error.why is None else f"{error.message}: {error.why}"
        return [Wrong("settings", CONFIG, why)]
    return []


def _no_json(path: Path) -> bool:
    try:
        return not isinstance(json.loads(path.read_bytes())["packs"], list)
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError, TypeError):
        return True


def mend(repository: Repository) -> list[tuple[str, str]]:
    """Repair each; yield (name, action)."""
    found = faults(repository)
    if not found:
        return []
    first = sorted((each for each in found if each.name in _FIRST), key=_order)
    done = [_mended(repository, each) for each in first]
    with repository.alone(GC_LOCK):
        done += [_mended(repository, each) for each in found if each.name not in _FIRST]
    return done


def _order(wrong: Wrong) -> int:
    return _FIRST.index(wrong.name)


def _mended(repository: Repository, wrong: Wrong) -> tuple[str, str]:
    path = repository.path / wrong.name
    if wrong.why.startswith("its mode"):
        try:
            path.chmod(stat.S_IMODE(path.stat().st_mode) | stat.S_IRUSR | stat.S_IWUSR)
        except OSError as error:
            raise durable.storage_error("change the mode of", path, error) from error
        return wrong.name, "its owner may read and write it again"
    if wrong.kind == "quarantine":
        quarantine.list_again(repository, path.parent)
        return wrong.name, "rebuilt from its folder"
    if wrong.kind == "format":
        _refuse_newer(repository)
    if os.path.lexists(path):
        _set_aside(repository, path, wrong.kind)
    if wrong.kind == "format":
        repositories.write_format(repository.path)
    elif wrong.kind == "settings":
        repository.config_file.write_text(repositories.NO_SETTINGS)
    elif wrong.kind == "folder":
        durable.make_directory(path)
    elif wrong.kind == "lock":
        path.touch()
    else:
        return wrong.name, "set aside"
    return wrong.name, "rewritten; the old one is in quarantine"


def _set_aside(repository: Repository, path: Path, kind: str) -> None:
    if path.is_symlink() and not path.exists():
        path.unlink()  # to nothing: nothing is lost with it
        return
    if kind == "folder":  # quarantine itself may be in the way
        path = path.rename(path.with_name(f"{path.name}-{os.urandom(4).hex()}"))
        for name in ("tmp", "quarantine"):
            if not (repository.path / name).exists():
                durable.make_directory(repository.path / name)
    place = quarantine.begin(repository, [path], "repair")
    quarantine.move_in(repository, place, [path])


def _refuse_newer(repository: Repository) -> None:
    """The file that tells the format is gone: what else is there tells whose it is."""
    try:
        assert repository.database
    except NewerFormat:
        raise
    except DlvError:
        repository.close()
    for root, what in ((repository.manifests, "manifest"), (repository.facts, "fact")):
        for digest, _ in repositories.stored(root, ".json"):
            try:
                data = repositories.read_object(root, digest, what)
                decode(data) if what == "manifest" else decode_fact(data)
            except NewerFormat as error:
                raise NewerFormat(
                    f"{repository.path} seems to be written by a newer dlv",
                    why=f"{what} {digest[:12]}: {error.message}",
                    hint="pip install --upgrade dlv, then dlv fsck --repair",
                ) from error
            except DlvError:
                continue  # damaged, and listed as that
