"""A network that `dlv add --factory` took from code: on its way from `add` to `commit`.

A safetensors file: the network as canonical JSON in the metadata, its constants as tensors.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import BinaryIO

from dlv.adapters import safetensors
from dlv.adapters.checkpoint import Checkpoint
from dlv.canonical import dumps, loads
from dlv.errors import Damaged, UsageError

FORMAT = "exported"
SUFFIX = ".network"
_KEY = "dlv_network"


def write(out: BinaryIO, checkpoint: Checkpoint) -> None:
    """Keep the network and the constants of what was exported."""
    if checkpoint.network is None:
        raise UsageError("what was exported has no network")
    kept = {
        "network": checkpoint.network.canonical(),
        "origin": dict(checkpoint.network.origin or {}),
        "notes": checkpoint.notes,
    }
    safetensors.save(out, checkpoint.constants, {_KEY: dumps(kept).decode("utf-8")})


def open(path: str) -> Checkpoint:  # noqa: A001 (the name in the Adapter protocol)
    """The network, with its constants to be read while the file is open."""
    opened = safetensors.open(path)
    try:
        import dlv.network.graph as graph

        header = json.loads((opened.skeleton or b"")[8:])
        kept = loads(header["__metadata__"][_KEY].encode("utf-8"), "network")
        network = graph.Network.from_canonical(kept["network"])
        origin, notes = dict(kept["origin"]), [str(note) for note in kept["notes"]]
    except (ValueError, KeyError, TypeError) as error:
        opened.close()
        raise Damaged(f"{path} has no network", why=str(error), hint="dlv add it again") from error
    return Checkpoint(
        FORMAT,
        [],
        notes=notes,
        close=opened.close,
        network=replace(network, origin=origin),
        constants=opened.tensors,
    )
