"""What planes of 4 bits take and tell: bounds of the same networks without them and with them.

Each network is committed twice. Both times real packs are written and the test rows evaluated;
the one time every weight keeps the layout `fixed`, the other time `archive --bounds` chooses.
Printed are the chunks and bytes of the packs without the bounds record, the record's bytes, and
from how many % of the bits of the weights the first level tells 90 and 97 % of the rows.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import torch

from benchmarks.progressive import measure, nets
from benchmarks.progressive.measure import Committed, Point
from benchmarks.storage.corpora import Corpus, default_cache
from benchmarks.storage.stores import DLV, run
from dlv.archiving.bounding import run as bounding
from dlv.archiving.bounding.run import Asked, Request, bound
from dlv.pas.chunks import SUFFIX
from dlv.pas.packs import Pack
from dlv.repository.handle import Repository
from dlv.weights.bounds import KIND

WANTED = (0.90, 0.97)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.progressive.half_planes", description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--net", action="append", choices=list(nets.NETS), help="only this one")
    given = parser.parse_args()
    torch.set_num_threads(1)
    corpus = Corpus(f"digits{nets.VERSION}", given.seed, nets.lines, given.cache, say)
    wanted = "".join(f"{f'{100 * share:g} %':>16}" for share in WANTED)
    print(f"{'':<24}{'':<8}{'chunks':>8}{'bytes':>10}{'record':>8}{'s':>7}{wanted}")
    with tempfile.TemporaryDirectory() as folder:
        for name in given.net or nets.NETS:
            net, model = nets.NETS[name], corpus.end(name)
            for title, worth in (("fixed", math.inf), ("halves", bounding.WORTH)):
                made = measure.added(net, model, given.seed, Path(folder, name, title))
                with mock.patch.object(bounding, "WORTH", worth):
                    bounded(made)
                print(f"{net.title:<24}{title:<8}{line(made)}", flush=True)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Silent:
    """A progress bar that nobody sees."""

    def advance(self, count: int) -> None: ...


@contextmanager
def silent(what: str, total: int) -> Iterator[Silent]:  # noqa: ARG001
    yield Silent()


def bounded(made: Committed) -> None:
    """Committed, and given bounds in this process, so that what it does can be changed."""
    run(made.folder, *DLV, "commit", "-m", made.net.title, "--name", made.net.name)
    begun = time.perf_counter()
    asked = Asked(str(made.folder / made.calibration()))
    with Repository.find(made.folder) as repository:
        bound(repository, Request((made.net.name,), asked, "benchmark"), progress=silent)
    made.seconds = time.perf_counter() - begun


def line(made: Committed) -> str:
    chunks, whole, record = stored(made)
    told = measure.told(made, made.test(), made.data.test_x, progressive="guaranteed")
    if told.wrong:
        raise SystemExit(f"{made.net.title}: {told.wrong} labels are wrong")
    parts = "".join(f"{first(told.points, share):>16}" for share in WANTED)
    return f"{chunks:>8}{whole - record:>10}{record:>8}{made.seconds:>7.1f}{parts}"


def stored(made: Committed) -> tuple[int, int, int]:
    """Chunks and bytes of all packs, and of these bytes the bounds record's."""
    paths = list((made.folder / ".dlv" / "packs").rglob(f"*{SUFFIX}"))
    chunks = record = 0
    for path in paths:
        with Pack(path) as pack:
            chunks += len(pack.chunks)
            record += sum(chunk.length for chunk in pack.chunks if chunk.kind == KIND)
    return chunks, sum(path.stat().st_size for path in paths), record


def first(points: list[Point], wanted: float) -> str:
    """The first level that tells so many rows."""
    for point in points:
        if point.determined >= wanted:
            return f"{100 * point.determined:.1f} from {100 * point.share:.1f}"
    return "-"


if __name__ == "__main__":
    main()
