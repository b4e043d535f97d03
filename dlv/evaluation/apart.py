"""`imported.checked` in a process of its own: some files that are not sound end onnxruntime.

The child prints its findings as one line of JSON; this process reopens the file if they require it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dlv.disk.children as children
import dlv.evaluation.imported as imported
from dlv.adapters.checkpoint import Checkpoint
from dlv.adapters.onnx import files
from dlv.evaluation.imported import runners

_CHILD_SECONDS = 120
_NOT_COMPARED = "the network was not compared with the file"


def keep_agreeing_apart(path: str, opened: Checkpoint, known: set[str]) -> tuple[Checkpoint, list[str]]:
    """As `imported.checked`."""
    if opened.network is None or opened.network.id in known or not runners():
        return opened, []
    found = _child_findings(path)
    if isinstance(found, str):
        return opened, [f"{_NOT_COMPARED}: {found}"]
    return reopened(path, opened, known, found)


def reopened(
    path: str, opened: Checkpoint, known: set[str], found: Mapping[str, Any]
) -> tuple[Checkpoint, list[str]]:
    """Open the file again as the comparison requires."""
    if found["raw"]:
        opened.close()
        opened = files.open(path, raw=frozenset(found["raw"]))
    if not found["network"]:
        opened.network, opened.constants = None, []
    if opened.network is not None:
        known.add(opened.network.id)
    return opened, list(found["notes"])


def _child_findings(path: str) -> dict[str, Any] | str:
    """Return the findings of the child process, or the reason why there are none."""
    command = children.python("dlv.evaluation.apart", str(Path(path).absolute()))
    try:
        done = children.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_CHILD_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {_CHILD_SECONDS} s"
    except OSError as error:
        return f"Python does not start: {error.strerror}"
    if done.returncode == -signal.SIGINT:
        raise KeyboardInterrupt
    if done.returncode < 0:
        return f"what ran the file was ended by {signal.Signals(-done.returncode).name}"
    try:
        # Libraries may have said something before.
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found if {"raw", "network", "notes"} <= found.keys() else "no answer came"
    except (ValueError, LookupError, AttributeError):
        return "no answer came"


def findings(path: str) -> dict[str, Any]:
    """Return the findings that the child process prints."""
    opened = files.open(path)
    raw: set[str] = set()
    opened, notes = imported.keep_agreeing(path, opened, set(), raw)
    kept = opened.network is not None
    opened.close()
    return {"raw": sorted(raw), "network": kept, "notes": notes}


def main() -> None:
    print(json.dumps(findings(sys.argv[1])))
