"""How long dlv takes before it does anything: help, `status`, `list`, `log` against click alone.

Every program runs in turn, round after round, so that what else the machine does hits all of
them; the fastest run of each counts. Prints a table and, as its last line, a JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CLICK = ["-c", "import click"]
CLICK_AND_SQLITE = ["-c", "import click, sqlite3"]
# command -> (what it is compared with, how many times as long it may take)
GOALS: dict[str, tuple[str, float]] = {
    "--help": ("import click", 1.4),
    "status": ("import click, sqlite3", 2.5),
    "list": ("import click, sqlite3", 2.5),
    "log": ("import click, sqlite3", 2.5),
    "desc lenet@1": ("import click", 2.6),
    "metrics": ("import click", 2.6),
    "query 'select m'": ("import click", 3.2),
    "diff lenet@1 lenet@2 --params": ("import click", 2.6),
    "diff lenet@1 lenet@2": ("import click", 2.6),
    "commit --allow-empty -m more": ("import click", 2.6),
}


def measure(programs: dict[str, list[str]], folder: Path, rounds: int) -> dict[str, float]:
    """Seconds of the fastest run of each program; the first round fills the caches."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("DLV_", "PYTHON"))}
    environ |= {"PYTHONPATH": str(ROOT), "HOME": str(folder)}
    best: dict[str, float] = {}
    for turn in range(rounds + 1):
        for name, arguments in programs.items():
            begun = time.perf_counter()
            subprocess.run(
                [sys.executable, *arguments],
                cwd=folder,
                env=environ,
                stdout=subprocess.DEVNULL,
                check=True,
            )
            taken = time.perf_counter() - begun
            if turn:
                best[name] = min(taken, best.get(name, taken))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    programs = {"import click": CLICK, "import click, sqlite3": CLICK_AND_SQLITE}
    programs |= {command: ["-m", "dlv", *shlex.split(command)] for command in GOALS}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "dlv", "demo", "demo"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        best = measure(programs, Path(folder) / "demo", rounds)
    rows: list[dict[str, Any]] = []
    for command, (base, goal) in GOALS.items():
        ratio = best[command] / best[base]
        rows.append(
            {
                "command": command,
                "base": base,
                "seconds": round(best[command], 5),
                "base_seconds": round(best[base], 5),
                "ratio": round(ratio, 3),
                "goal": goal,
                "met": ratio <= goal,
            }
        )
    print(f"{'dlv':<30}{'ms':>8}{'compared with':>24}{'ms':>8}{'ratio':>8}{'goal':>6}")
    for row in rows:
        print(
            f"{row['command']:<30}{row['seconds'] * 1000:>8.1f}{row['base']:>24}"
            f"{row['base_seconds'] * 1000:>8.1f}{row['ratio']:>8.2f}{row['goal']:>6.1f}"
            f"{'' if row['met'] else '  missed'}"
        )
    print(json.dumps({"benchmark": "startup", "rounds": rounds, "rows": rows}))


if __name__ == "__main__":
    main()
