"""The table: `python -m tests.idioms.run [--only WORD] [--cells onnx,numpy] [--all-nodes] [-v]`."""

from __future__ import annotations

import argparse
import functools
import inspect
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tests.idioms import (
    activations,
    calls,
    calls_more,
    masks,
    modes,
    norms,
    recurrent,
    shapes,
    writes,
    writes_more,
)
from tests.idioms.cells import CELLS, EQUAL, NONE, REFUSED, SAID, TRACEBACK, WRONG, Row, Trial
from tests.idioms.table import IDIOMS

SUBJECTS = (
    *(activations, calls, calls_more, masks, modes, norms, recurrent, shapes),
    *(writes, writes_more),
)
_MARKS = {EQUAL: "=", SAID: "s", REFUSED: "r", NONE: ".", WRONG: "W", TRACEBACK: "T"}


def rows(
    names: Sequence[str], cells: Sequence[str] = CELLS, all_nodes: bool = False
) -> Iterator[Row]:
    torch.set_num_threads(1)
    for name in names:
        yield Trial(IDIOMS[name], all_nodes).row(cells)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="idioms or subjects, with commas between")
    parser.add_argument("--cells", default=",".join(CELLS))
    parser.add_argument("--all-nodes", action="store_true")
    parser.add_argument("-v", action="store_true", help="also what refusals say")
    parser.add_argument("--findings", default="", help="a file for what is bad")
    parser.add_argument("--refused", default="", help="a file for what is refused, numpy apart")
    options = parser.parse_args()
    words = options.only.split(",")
    names = [n for n, each in IDIOMS.items() if any(w in f"{each.subject}/{n}" for w in words)]
    cells = options.cells.split(",")
    start, seen, found = time.perf_counter(), Counter[str](), []
    print(f"{'':34}" + " ".join(f"{name:>6.6}" for name in CELLS))
    for row in rows(names, cells, options.all_nodes):
        found.append(row)
        marks = [_MARKS[row.cells[name].kind] if name in row.cells else " " for name in CELLS]
        print(f"{row.idiom.name:34}" + " ".join(f"{mark:>6}" for mark in marks), flush=True)
        for name, cell in row.cells.items():
            seen[cell.kind] += 1
            if cell.kind in (WRONG, TRACEBACK) or (
                options.v and cell.kind in (REFUSED, SAID, NONE)
            ):
                print(f"      {name}: {cell.kind} {cell.text}")
    took = time.perf_counter() - start
    lines = [
        f"{len(found)} modules, {took:.0f} s: " + ", ".join(f"{k} {n}" for k, n in seen.items())
    ]
    for each in CELLS:
        kinds = Counter(row.cells[each].kind for row in found if each in row.cells)
        lines.append(f"  {each:12}" + ", ".join(f"{kind} {count}" for kind, count in kinds.items()))
    head = "\n".join(lines)
    print(head)
    if options.refused:
        with open(options.refused, "w", encoding="utf-8") as file:
            for row in found:
                for name, cell in row.cells.items():
                    if cell.kind == REFUSED and not name.endswith("numpy"):
                        file.write(f"{row.idiom.name} {name}\n")
    if options.findings:
        write(options.findings, found, f"```\n{head}\n```")


def write(path: str, found: Sequence[Row], head: str) -> None:
    """What is bad, cells with the same answer together, and the module's code."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"# What is WRONG or a TRACEBACK\n\n{head}\n")
        for row in found:
            if not row.bad:
                continue
            by_text: dict[str, list[str]] = {}
            for name, cell in row.bad.items():
                text = " ".join(f"{cell.kind} {cell.text}".split())
                by_text.setdefault(text[:260], []).append(name)
            file.write(f"\n## {row.idiom.subject}/{row.idiom.name}\n")
            for text, names in by_text.items():
                file.write(f"- {', '.join(names)}: {text}\n")
            file.write(f"```python\n{_code(row.idiom.make)}```\n")


def _code(make: Any) -> str:
    function = make.args[0] if isinstance(make, functools.partial) else make
    return inspect.getsource(function)


if __name__ == "__main__":
    main()
