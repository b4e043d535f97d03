"""Many processes in one repository at once: python -m tests.crash.crowd FOLDER WHO COUNT [HOW].

HOW is `mixed`: tags, removals, undos and rebuilds between the commits; `archiving`: reading and
archives as well; or `collect`: gc without any grace besides all that.

Everything is imported once, then forked. Each process prints a JSON line per version that was
acknowledged, and one per error that should not have been.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import random
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

import dlv.archiving.archive as archiving
import dlv.recovery.rebuild as rebuild
import dlv.repository.revisions as revisions
import dlv.repository.undo as undo
import dlv.upkeep.collect as collect
import dlv.versions.add as adding
import dlv.versions.commit as committing
import dlv.versions.remove as remove
from dlv.archiving import proposal
from dlv.archiving.budgets import Policy
from dlv.errors import Conflict, NotFound, UnsafeInput
from dlv.metadata import usage, versions
from dlv.repository.handle import Repository
from dlv.versions.commit import Request
from dlv.weights.store import MatrixStore

MATRICES = 6
NAMES = ("lenet", "wide")


def files(root: Path, who: int, turn: int) -> list[str]:
    """Own weights, of which some matrices are the same for everybody, and an own file.

    All are near those of the others: worth storing as differences.
    """
    folder = root / f"worker{who}"
    folder.mkdir(exist_ok=True)
    shared = np.random.default_rng(turn)
    own = np.random.default_rng([who, turn])
    weights = {}
    for i in range(MATRICES):
        shape = (400 if i < 2 else 40, 50 + i)  # large enough for chunks of their own, or not
        common = np.random.default_rng([7, i]).normal(size=shape)
        little = (shared if i % 2 else own).normal(0, 1e-5, shape)
        weights[f"w{i}"] = (common + little).astype(np.float32)
    save_file(weights, folder / "weights.safetensors")
    (folder / "notes.txt").write_text(f"{who} {turn}\n")
    return [f"worker{who}/weights.safetensors", f"worker{who}/notes.txt"]


def commit(repository: Repository, who: int, turn: int) -> None:
    added = adding.examine(
        repository.root, repository.root, files(repository.root, who, turn), adding.Request()
    )
    name = NAMES[(who + turn) % len(NAMES)]
    request = Request(f"turn {turn} of {who}", f"worker {who}", name, staged=added.files)
    while True:
        try:
            made = committing.commit(repository, request)
        except Conflict as error:  # as the hint says
            if "rebuilt by another" not in error.message:
                raise
        else:
            break
    say({"id": made.id, "name": made.name, "number": made.number})


def other(repository: Repository, who: int, rng: random.Random) -> None:
    """A tag, a removal or an undo; that another process was faster is no fault."""
    author = f"worker {who}"
    live = versions.all_versions(repository.database)
    chosen = rng.choice(live).label if live else "lenet@1"
    try:
        match rng.randrange(4):
            case 0:
                revisions.set_tag(repository, f"tag{rng.randrange(5)}", chosen, author, move=True)
            case 1:
                remove.remove(repository, [chosen], author, force=True)
            case 2:
                undo.undo(repository, author)
            case 3:
                rebuild.rebuild(repository)
    except (Conflict, NotFound, UnsafeInput) as error:
        if "busy" in error.message:
            raise


@contextlib.contextmanager
def silent(what: str, total: int) -> Iterator[proposal.Bar]:
    yield Still()


class Still:
    def advance(self, count: int) -> None: ...


def archive(repository: Repository, who: int, rng: random.Random) -> None:
    request = proposal.Request(
        policy=Policy(alpha=rng.choice([1.5, 50.0])), jobs=2, author=f"worker {who}"
    )
    try:
        archiving.archive(repository, request, progress=silent)
    except Conflict as error:  # one at a time; and a rebuild may come between
        if "busy" in error.message:
            raise


def run_gc(repository: Repository, who: int) -> None:
    """Others may read and write for longer than it waits."""
    request = collect.Request(datetime.timedelta(0), author=f"worker {who}")
    try:
        collect.collect(repository, request, progress=silent)
    except Conflict as error:
        if "busy" in error.message:
            raise


def read(repository: Repository, rng: random.Random) -> None:
    """A version, one matrix after the other or all together: each is held against its name."""
    db = repository.database
    live = versions.all_versions(db)
    if not live:
        return
    held = usage.held_snapshots(db, [rng.choice(live).key])
    names = {digest for snapshot in held for _, _, digest in snapshot.tensors}
    with contextlib.closing(MatrixStore.of(repository)) as store:
        for name in sorted(names):
            store.matrix(name)
        assert {name for name, _ in store.together(names)} == names


def say(line: dict[str, object]) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


def work(root: Path, who: int, turns: int, how: str) -> None:
    rng = random.Random(who)
    try:
        with Repository.find(root) as repository:
            for turn in range(turns):
                if not how or not turn % 2:
                    commit(repository, who, turn)
                elif how == "collect" and rng.random() < 0.4:
                    run_gc(repository, who)
                elif how == "mixed" or rng.random() < 0.2:
                    other(repository, who, rng)
                elif rng.random() < 0.5:
                    archive(repository, who, rng)
                else:
                    read(repository, rng)
    except BaseException:
        say({"error": traceback.format_exc()})
        os._exit(1)


def main() -> None:
    root, many, turns, *rest = sys.argv[1:]
    children = []
    for who in range(int(many)):
        child = os.fork()
        if not child:
            work(Path(root), who, int(turns), "".join(rest))
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
