"""`dlv search` over 100,000 cards: seconds of the first time, and of each search after it.

python -m benchmarks.search [CARDS]
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import dlv.hub.index as index
import dlv.hub.remotes as remotes
import dlv.hub.searching as searching
from dlv.hub.index import Index, Segment
from dlv.hub.stores.directory import DirectoryStore
from dlv.repository.handle import Repository

DLV = [sys.executable, "-m", "dlv"]
RARE = [f"w{i:x}" for i in range(5000)]
# As in a language: the second word is half as frequent as the first, and so on.
COMMON = ["model", "vision", "speech", "text", "small", "large", "fast", "tiny", "robust", "sparse"]
WORDS = [*COMMON, *RARE]
WEIGHTS = [1 / (i + 1) for i in range(len(WORDS))]
TASKS = ("image-classification", "text-generation", "translation", "object-detection")


def fill(folder: Path, count: int) -> None:
    """Write the index that publishes of so many fine-tunes of two networks would leave."""
    subprocess.run([*DLV, "demo", "made"], cwd=folder, check=True, capture_output=True)
    made = folder / "made"
    subprocess.run(
        [*DLV, "remote", "add", "origin", "../team"], cwd=made, check=True, capture_output=True
    )
    subprocess.run(
        [*DLV, "publish", "lenet", "lenet-wide"], cwd=made, check=True, capture_output=True
    )
    store = DirectoryStore(folder / "team")
    first = Index(store).segment(1)
    models = list(first.cards.values())
    rng = random.Random(1)
    whole = Segment()
    whole.networks = first.networks
    for i in range(count):
        record = json.loads(json.dumps(rng.choice(models)))
        words = rng.sample(COMMON, 4)
        record |= {
            "id": f"{i:064x}",
            "name": f"{words[0]}-{words[1]}-{i // 20}",
            "number": 1 + i % 20,
            "message": " ".join(rng.choices(WORDS, WEIGHTS, k=5)),
            "task": rng.choice(TASKS),
            "license": rng.choice(["mit", "apache-2.0", None]),
            "tags": words[2:],
            "text": " ".join(rng.choices(WORDS, WEIGHTS, k=60)) + f" number{i}",
        }
        for metric in record["metrics"]:
            metric["last"] = rng.random()
        whole.cards[record["id"]] = record
    store.put(index.segment_key(2), whole.encode())


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        fill(folder, count)
        made = folder / "made"
        times = {}
        for label in ("first", "again"):
            begin = time.perf_counter()
            subprocess.run(
                [*DLV, "search", "vision accuracy>0.9"], cwd=made, check=True, capture_output=True
            )
            times[label] = time.perf_counter() - begin
        repository = Repository.find(made)
        opened = remotes.open_remote(repository, "origin", str(folder / "team"), {})
        catalogue = index.catalogue_of(opened, False, lambda _: None, lambda _: None)
        rng = random.Random(2)
        searches = []
        for i in range(400):
            one, other = rng.choices(WORDS, WEIGHTS, k=2)
            text = [
                f"{one} {other}",
                f"number{rng.randrange(count)}",
                f"task:{rng.choice(TASKS)} accuracy>{rng.random():.3f}",
                f"{one} net:conv* tag:{rng.choice(COMMON)} loss<0.3",
                f"name:{rng.choice(COMMON)}* license:mit {other}",
            ][i % 5]
            sort = None if i % 3 else "accuracy"
            begin = time.perf_counter()
            result = searching.search(catalogue.database, text, sort=sort)
            searches.append((time.perf_counter() - begin, text, result.count))
        searches.sort()
        took = [seconds * 1000 for seconds, *_ in searches]
        commands = []
        for _, text, _ in rng.sample(searches, 40):
            begin = time.perf_counter()
            words = [*DLV, "search", *text.split(), "--offline"]
            subprocess.run(words, cwd=made, check=True, capture_output=True)
            commands.append(time.perf_counter() - begin)
        commands.sort()
        report = {
            "cards": count,
            "command, first time [s]": times["first"],
            "command with new segments looked for [s]": times["again"],
            "command --offline, median of 40 [s]": statistics.median(commands),
            "command --offline, worst of 40 [s]": commands[-1],
            "search alone, p50 [ms]": statistics.median(took),
            "search alone, p99 [ms]": took[int(len(took) * 0.99) - 1],
            "search alone, max [ms]": took[-1],
            "slowest": searches[-1][1:],
        }
        for key, value in report.items():
            print(f"{key:44}{value if not isinstance(value, float) else round(value, 3)}")
        print(json.dumps(report))


if __name__ == "__main__":
    main()
