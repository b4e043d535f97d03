"""Right after a Keras file was read: does its network compute what Keras computes?

Asked where Keras is installed. It runs in a process of its own, as it takes seconds to start and
may end in any way. Nothing of the file is run: Keras gets layers and settings that dlv knows.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import dlv.disk.children as children
from dlv.adapters.checkpoint import Checkpoint
from dlv.network.agreement import too_long

MOST_SECONDS = 120


@dataclass(frozen=True)
class Verdict:
    """`refused`: why the network must not be used; `note`: why nothing was compared."""

    refused: str | None = None
    note: str | None = None


_FOUND: dict[str, Verdict] = {}  # by network: many files of a folder have the same


def held_against(opened: Checkpoint, path: Path, format_: str) -> Verdict:
    """The verdict; it is empty without Keras, or if no engine runs one of the layers."""
    network = opened.network
    if network is None or (network.origin or {}).get("importer") != "keras":
        return Verdict()
    if any(node.source and node.source["dialect"] == "keras" for node in network.nodes):
        return Verdict()  # it does not run as a whole, and says so
    if importlib.util.find_spec("keras") is None:
        return Verdict()
    tensors = {tensor.name: (tensor.dtype, tensor.shape) for tensor in opened.tensors}
    long = too_long(network, tensors, batch=5)
    if long is not None:
        return Verdict(note=f"its network was not compared with Keras: {long}")
    if network.id not in _FOUND:
        _FOUND[network.id] = _ask(path, format_)
    return _FOUND[network.id]


def _ask(path: Path, format_: str) -> Verdict:
    command = children.python("dlv.adapters.keras.check.child", str(path.absolute()), format_)
    try:
        done = children.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=MOST_SECONDS,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
    except subprocess.TimeoutExpired:
        return Verdict(note=f"its network was not compared with Keras within {MOST_SECONDS} s")
    except OSError as error:
        return Verdict(note=f"its network was not compared with Keras: {error.strerror}")
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return Verdict(
            note=f"its network was not compared with Keras, which ended {done.returncode}"
        )
    if "skipped" in found:
        return Verdict(note=f"its network was not compared with Keras: {found['skipped']}")
    if "way" in found:
        first = f", first the layer {found['first']!r}" if found.get("first") else ""
        return Verdict(
            refused=f"kept without its network: in {found['way']} it computes something else than"
            f" Keras ({found['why']}{first})"
        )
    return Verdict()
