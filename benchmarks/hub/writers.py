"""Writers that publish through a hub as `dlv publish` does, in one process.

python -m benchmarks.hub.writers < JSON: urls of the repository, tokens, first (the number of the
first writer), writers, pushes, models, pack (bytes of new weights in a version). Prints a line of
JSON for each published version: its model, number of the ref, hash, and seconds.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dlv.canonical import hash_bytes, timestamp
from dlv.hub.deletion import leased
from dlv.hub.history import History, successor
from dlv.hub.locator import Locator
from dlv.hub.records import object_key
from dlv.hub.stores.server import HubStore
from dlv.hub.stores.web import WebClient
from dlv.objects.manifest import Manifest

_printing = threading.Lock()


def write(job: dict[str, Any], number: int, folder: Path) -> None:
    """Publish versions; if another writer was first, append after it."""
    url = job["urls"][number % len(job["urls"])]
    store = HubStore(url, WebClient(url, job["tokens"][number % len(job["tokens"])]))
    (folder / "tmp").mkdir(parents=True)
    history = History(store, folder / "cache", folder / "tmp")
    model = f"net{number % job['models']}"
    for turn in range(job["pushes"]):
        begun = time.monotonic()
        pack = os.urandom(job["pack"])
        author = f"writer {number}"
        manifest = Manifest(model, f"version {turn} of {author}", author, timestamp()).encode()
        locator = Locator(hash_bytes(manifest), [hash_bytes(pack)]).encode()
        objects = {"packs": pack, "manifests": manifest, "locators": locator}
        with leased(store):
            for kind, data in objects.items():
                store.put(object_key(kind, hash_bytes(data)), data)
            while True:
                chain = history.chain(model, None)
                ref = successor(
                    chain,
                    "publish",
                    name=model,
                    number=len(chain) + 1,
                    manifest=hash_bytes(manifest),
                    locator=hash_bytes(locator),
                    author=author,
                )
                if history.append(ref):
                    break
                time.sleep(random.uniform(0, 0.02))
        record = {"model": model, "seq": ref.seq, "hash": ref.hash, "id": ref.manifest}
        record["seconds"] = time.monotonic() - begun
        with _printing:
            print(json.dumps(record), flush=True)


def main() -> None:
    job = json.load(sys.stdin)
    numbers = range(job["first"], job["first"] + job["writers"])
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(job["writers"]) as pool:
        folders = [Path(name) / str(number) for number in numbers]
        list(pool.map(write, [job] * len(folders), numbers, folders))


if __name__ == "__main__":
    main()
