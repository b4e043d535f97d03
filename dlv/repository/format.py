"""`.dlv/format.json`: which format a repository has, and where repositories are looked for."""

from __future__ import annotations

import re
from pathlib import Path

import dlv.disk.durable as durable
from dlv.canonical import VERSION, WRITER, dumps, read_json
from dlv.errors import Damaged, DlvError, NewerFormat, NotARepository, StorageError

FORMAT = 1
FOLDER, NAME = ".dlv", "format.json"
_MEND = "dlv fsck --repair writes it again; nothing else is touched"
_WRITER = re.compile(r"dlv ([0-9]+(?:\.[0-9]+)*)[0-9A-Za-z.+-]*")
_ONE_BIT_OFF = {FORMAT ^ 1 << bit for bit in range(4)}


def around(start: Path) -> Path:
    """The `.dlv` of the repository around `start`, whatever has become of its format."""
    here = start.resolve()
    for folder in (here, *here.parents):
        if _is_one(folder / FOLDER):
            return folder / FOLDER
    raise NotARepository(
        f"no repository in {start} or above it",
        why="a repository is a folder with a .dlv inside",
        hint="dlv init",
    )


def named(dlv_dir: str) -> Path:
    """The one that DLV_DIR names."""
    # Files are named from the real folder, but `.dlv` itself may be a link.
    path = Path(dlv_dir).absolute()
    path = path.parent.resolve() / path.name
    if not _is_one(path):
        raise NotARepository(
            f"DLV_DIR names no repository: {dlv_dir}", hint="unset DLV_DIR, or dlv init"
        )
    return path


def _is_one(path: Path) -> bool:
    """Also where the file that says so is lost."""
    if (path / NAME).is_file():
        return True
    return (path / "packs").is_dir() or (path / "manifests").is_dir()


def check(path: Path) -> None:
    """Whether this dlv can read the repository in `path`: errors say what else it is."""
    file = path / NAME
    if not file.is_file():
        how = "is no file any more" if file.exists() else "is lost"
        raise Damaged(f"{file} {how}", why=f"it tells the format of {path}", hint=_MEND)
    try:
        data = read_json(file.read_bytes(), str(file))
    except OSError as error:
        raise durable.storage_error("read", file, error) from error
    except DlvError as error:
        raise Damaged(
            f"{file} cannot be read", why=error.why or error.message, hint=_MEND
        ) from None
    number = data.get("format") if isinstance(data, dict) else None
    if type(number) is not int or number < 1:
        raise Damaged(f"{file} tells no format", hint=_MEND)
    if number != FORMAT:
        raise NewerFormat(
            f"{path} has the repository format {number}",
            why=f"this dlv knows format {FORMAT}; it was made by {data.get('writer')}",
            hint="pip install --upgrade dlv",
        )


def fault(path: Path) -> str | None:
    """What is wrong with the file, where another may be written: never where it tells of a newer
    format, but for a number that is one bit away from that of the dlv which wrote it."""
    try:
        check(path)
    except NewerFormat as error:
        if not _flipped(path):
            raise
        return f"{error.message}, which the dlv that wrote it did not know: a bit is wrong"
    except (Damaged, StorageError) as error:
        return error.why or error.message
    data = (path / NAME).read_bytes()
    writer = read_json(data)["writer"] if b'"writer"' in data else ""
    plain = isinstance(writer, str) and _WRITER.fullmatch(writer)
    right = plain and data == dumps({"format": FORMAT, "writer": writer})
    return None if right else "it is not as dlv writes it"


def _flipped(path: Path) -> bool:
    data = (path / NAME).read_bytes()
    found = read_json(data)
    number, writer = found["format"], str(found.get("writer"))
    known = _WRITER.fullmatch(writer)
    if known is None or number not in _ONE_BIT_OFF:
        return False
    if data != dumps({"format": number, "writer": writer}):
        return False
    return _parts(known[1]) <= _parts(VERSION)


def _parts(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]+", version)]


def write_format(path: Path) -> None:
    data = dumps({"format": FORMAT, "writer": WRITER})
    durable.replace(path / NAME, data, tmp_dir=path / "tmp")
