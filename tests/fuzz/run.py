"""Many inputs with something wrong, given to what reads them: python -m tests.fuzz.run --help

Each input must end in a result or in a DlvError, in less than LIMIT seconds of processor time and
without more than a gigabyte and a half of memory. Inputs that do not are written to --out.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from dlv.errors import DlvError
from tests.fuzz.targets import TARGETS, Target

LIMIT = 5.0  # seconds: more than twice the goal, whatever else runs
MEMORY = 3 << 29


class TooSlowError(BaseException):
    """No handler of an Exception may take it for an error of the input."""


def inputs(target: Target, seed: int) -> Iterator[bytes]:
    lot = random.Random(seed)
    seeds = list(target.seeds())
    assert seeds, "saved queries: nothing to begin from"
    while True:
        yield target.change(lot, lot.choice(seeds), seeds)


def outcome(target: Target, data: bytes) -> tuple[str, str]:
    """In a word what became of one input; "fault" with a traceback if it is dlv's fault."""
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    try:
        target.run(data)
    except DlvError as error:
        if error.kind == "internal":
            return "fault", traceback.format_exc()
        return error.kind, ""
    except TooSlowError:
        return "fault", f"more than {LIMIT} s\n{traceback.format_exc()}"
    except BaseException:
        return "fault", traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return "read", ""


def fuzz(name: str, runs: int, seed: int, out: Path | None = None) -> dict[str, Any]:
    """So many inputs in this process: how they ended, and the first of each kind of fault."""
    limit_time()
    target = TARGETS[name]
    counts: Counter[str] = Counter()
    faults: dict[str, str] = {}
    began = time.monotonic()
    for place, data in zip(range(runs), inputs(target, seed), strict=False):
        kind, told = outcome(target, data)
        counts[kind] += 1
        if told:
            where = " ".join(told.strip().splitlines()[-2:])
            if where not in faults:
                faults[where] = told
                if out is not None:
                    out.mkdir(parents=True, exist_ok=True)
                    (out / f"{name}-{seed}-{place}.bin").write_bytes(data)
    seconds = time.monotonic() - began
    return {"target": name, "counts": dict(counts), "faults": faults, "seconds": seconds}


def limit_time() -> None:
    """Before the first `outcome`: too long ends an input and not the process."""
    signal.signal(signal.SIGVTALRM, _over)


def _over(number: int, frame: FrameType | None) -> None:
    raise TooSlowError


def shards(name: str, runs: int, seed: int, jobs: int, out: Path | None) -> dict[str, Any]:
    """The same in several processes, whose memory is bounded."""
    gc.freeze()
    readers = []
    for part in range(jobs):
        reader, writer = os.pipe()
        if not os.fork():
            resource.setrlimit(resource.RLIMIT_AS, (_size() + MEMORY,) * 2)
            with os.fdopen(writer, "w") as file:
                json.dump(fuzz(name, runs // jobs, seed * 1000 + part, out), file)
            os._exit(0)
        os.close(writer)
        readers.append(reader)
    whole: dict[str, Any] = {"target": name, "counts": Counter(), "faults": {}, "seconds": 0.0}
    for reader in readers:
        with os.fdopen(reader) as file:
            text = file.read()
        os.wait()
        if not text:  # the process itself is gone
            whole["faults"]["died"] = "a process that read inputs died"
            continue
        found = json.loads(text)
        whole["counts"].update(found["counts"])
        whole["faults"] |= found["faults"]
        whole["seconds"] = max(whole["seconds"], found["seconds"])
    return whole


def _size() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--runs", type=int, default=10_000, help="inputs of each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("fuzz-faults"))
    given = parser.parse_args()
    bad = 0
    for name in given.targets or TARGETS:
        found = shards(name, given.runs, given.seed, given.jobs, given.out)
        counts = ", ".join(f"{kind} {n}" for kind, n in sorted(found["counts"].items()))
        print(f"{name:14} {found['seconds']:7.1f} s  {counts}", flush=True)
        for told in found["faults"].values():
            bad += 1
            print(told, file=sys.stderr, flush=True)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
