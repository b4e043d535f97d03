"""`network.json`: a network that people write, or that `dlv desc --json` printed."""

from __future__ import annotations

import json
from pathlib import Path

from dlv.canonical import MAX_BYTES, MAX_DEPTH, read_json
from dlv.errors import Damaged, StorageError
from dlv.network.graph import Network
from dlv.network.json_form import read, write

FORMAT = "network_json"
SUFFIX = ".json"


def open(path: str) -> tuple[Network, list[str]]:  # noqa: A001
    """The network of a file, and warnings about what was not understood."""
    return parse(_bytes(path), Path(path).name)


def parse(data: bytes, label: str = "network") -> tuple[Network, list[str]]:
    """The network in these bytes, and warnings; `label` names them in messages."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    return read(read_json(data, label, limit=MAX_BYTES, depth=MAX_DEPTH))


def save(network: Network, path: str) -> None:
    """Write the plain form, indented."""
    import dlv.disk.user_files as user_files

    user_files.write(Path(path), text(network).encode())


def text(network: Network) -> str:
    """The plain form as a text for people: one node's field a line."""
    return json.dumps(write(network), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _bytes(path: str) -> bytes:
    try:
        with Path(path).open("rb") as source:
            # One byte beyond the limit is enough to know that it is too large.
            data = source.read(MAX_BYTES + 1)
    except OSError as error:
        raise StorageError(f"cannot read {path}", why=error.strerror) from error
    if len(data) > MAX_BYTES:
        raise Damaged(f"{Path(path).name} is too large", why=f"the limit is {MAX_BYTES}")
    return data
