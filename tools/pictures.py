"""Draw the pictures of the README: a terminal at work, and how large stores are.

    python tools/pictures.py [STORES.json]

The terminal is a real session in the repository that `dlv demo` makes. The sizes are those that
`python -m benchmarks.storage --stores` printed, kept in docs/images/stores.json; another file of
that form takes its place.
"""

from __future__ import annotations

import io
import json
import os
import pty
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import console
import matplotlib as mpl
from rich.console import Console
from rich.text import Text

IMAGES = console.ROOT / "docs" / "images"
STORES = IMAGES / "stores.json"
WIDTH = 88
COMMANDS = (
    "dlv list",
    "dlv diff lenet@2 lenet@3 --tensors --params",
    "dlv eval lenet@1 lenet@3 test.npz",
    "dlv checkout lenet@best:test/accuracy --to best -q",
)
WAYS = {
    "files": "files, git-lfs, DVC",
    "git gc": "git",
    "dlv commit": "dlv commit",
    "dlv archive": "dlv archive",
}


def terminal() -> str:
    """A session as SVG, in the colors of a terminal."""
    drawn = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as place:
        base = Path(place)
        environ = console.environment(base) | {"TERM": "xterm-256color", "COLUMNS": str(WIDTH)}
        environ.pop("NO_COLOR", None)
        run = [sys.executable, "-m", "dlv"]
        subprocess.run([*run, "demo", "demo", "-q"], cwd=base, env=environ, check=True)
        for command in COMMANDS:
            text = _in_a_terminal([*run, *command.split()[1:]], base / "demo", environ)
            drawn.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            drawn.print(Text.from_ansi(text), no_wrap=True, overflow="crop")
            drawn.print()
    return drawn.export_svg(title="dlv", unique_id="dlv")


def _in_a_terminal(line: list[str], folder: Path, environ: dict[str, str]) -> str:
    parent, child = pty.openpty()
    process = subprocess.Popen(
        line, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=child, stderr=child
    )
    os.close(child)
    found = b""
    while True:
        try:
            piece = os.read(parent, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        found += piece
    os.close(parent)
    process.wait()
    return found.decode().replace("\r\n", "\n").rstrip("\n")


def sizes(stores: dict[str, dict[str, dict[str, float]]], path: Path) -> None:
    """Bars: bytes of each store as parts of the files themselves."""
    mpl.use("svg")
    import matplotlib.pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "dlv"
    figure, axes = plt.subplots(figsize=(8, 0.62 * len(stores) * 1.9))
    colors = {
        "files": "#b0b7c3",
        "git gc": "#8793a8",
        "dlv commit": "#6fb3e0",
        "dlv archive": "#1f77b4",
    }
    at, ticks, labels = 0.0, [], []
    for name, ways in reversed(stores.items()):
        shown = [way for way in reversed(WAYS) if way in ways]
        for way in shown:
            share = ways[way]["bytes"] / ways["files"]["bytes"]
            axes.barh(at, share, color=colors[way], height=0.85)
            axes.text(share + 0.01, at, f"{share:.3f}  {WAYS[way]}", va="center", fontsize=8)
            at += 1
        ticks.append(at - (len(shown) + 1) / 2)
        labels.append(name)
        at += 0.6
    axes.set_yticks(ticks, labels, fontsize=9)
    axes.set_xlim(0, 1.35)
    axes.set_xlabel("bytes stored / bytes of the files")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    if len(sys.argv) > 1:
        shutil.copy(sys.argv[1], STORES)
    (IMAGES / "terminal.svg").write_text(terminal(), encoding="utf-8")
    sizes(json.loads(STORES.read_text(encoding="utf-8"))["stores"], IMAGES / "sizes.svg")


if __name__ == "__main__":
    main()
