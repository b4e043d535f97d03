"""Every verb that changes a repository, each with what has to be there before it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests import event_bytes

COMMIT = ("commit", "-q", "-m", "second")
INTO = ("query", "-q", 'construct d from m mutate m["fc"].out in [4, 5] into "wide"')
ARCHIVE = ("archive", "-q", "--alpha", "50")
GC = ("gc", "--grace", "0", "-y", "-q")
EVALUATE = (
    "query",
    "-q",
    'evaluate m from m where m = "lenet@2" with config = "base.json"'
    " vary config.base_lr in [0.1, 0.2, 0.3]"
    ' keep top(1, m["loss"], 4) on local(workers = 1) into "tuned"',
)
EVAL_TO_FILES = (
    *("eval", "-q", "lenet@2", "data.npz", "--predictions-out", "labels.csv"),
    *("--activations", "fc", "-o", "fc.npz", "--force"),
)
# A command, the seed of new files, or a name in FILES.
Step = Sequence[str] | int | str
SECOND: list[Step] = [["add", "."], ["commit", "-m", "second"]]
# Archived once, and two versions that came after it: deltas lie upon deltas, and packs of the
# first archive are written again in part.
THIRD: list[Step] = [*SECOND, ARCHIVE, 3, ["add", "."], ["commit", "-m", "third"]]
FOURTH: list[Step] = [*THIRD, 4, ["add", "."], ["commit", "-m", "fourth"]]
# Of the four the first is a base of what stays, another one is alone in its pack.
HIDDEN: list[Step] = [*FOURTH, ["rm", "-f", "lenet@1", "lenet@3"]]
# And taken by gc, in a time to come: nothing of it is deleted now. One snapshot stays removed.
TAKEN: list[Step] = [*HIDDEN, ["DLV_NOW=2046-01-01T00:00:00.000000Z", "gc", "-y"]]
# Published, and then taken by gc: a pull brings it back.
TAKEN_BACK: list[Step] = [
    *SECOND,
    ["remote", "add", "origin", "team"],
    ["publish", "lenet@2"],
    ["checkout", "-f", "lenet@1"],
    ["rm", "-f", "lenet@2"],
    GC,
]
PLACE = "@quarantine"  # in a command: the one folder of quarantine there is
RESTORE = ("gc", "--restore", PLACE, "-q")


def _rows() -> bytes:
    out = io.BytesIO()
    data = np.random.default_rng(0).normal(size=(20, 16)).astype("f4")
    np.savez(out, data=data, labels=np.arange(20) % 10)
    return out.getvalue()


# Files that a word among the commands before stands for.
FILES: dict[str, dict[str, str | bytes]] = {
    "runs": {
        f"runs/{run}/events.out.tfevents.1.host": b"".join(
            [
                *(event_bytes.scalar("loss", step, 1 / step) for step in range(1, 30)),
                event_bytes.text("notes", 1, run),
                event_bytes.image("sample", 1, b"\x89PNG\r\n\x1a\n"),
            ]
        )
        for run in ("a", "b")
    },
    "data": {"data.npz": _rows()},
    "a trainer": {
        "bowl.py": """
import numpy as np

def train(net, config, steps, ckpt, log):
    w = np.array(ckpt.state.get("weight/fc.weight", net.weights("fc.weight")), "f4")
    for step in range(ckpt.step, steps):
        noise = np.random.default_rng([config.seed, step]).normal(0, 1, w.shape).astype("f4")
        w = w - np.float32(config["base_lr"]) * (w + np.float32(0.05) * noise)
        if (step + 1) % config.log_every == 0 or step + 1 == steps:
            if log(step + 1, {"loss": float((w * w).sum())}, {"weight/fc.weight": w}):
                return
""",
        "base.json": '{"trainer": "bowl:train", "steps": 8, "log_every": 2, "base_lr": 0.1}',
    },
}


@dataclass(frozen=True)
class Verb:
    """`release`: not in a fresh repository, but in one that a release wrote."""

    command: Sequence[str]
    before: Sequence[Step] = tuple(SECOND)
    settings: Sequence[str] = ()
    release: str | None = None


VERBS = {
    "add": Verb(("add", "."), ()),
    "reset": Verb(("reset",), (["add", "."],)),
    "commit": Verb(COMMIT, (["add", "."],)),
    "archive": Verb(ARCHIVE),
    "archive again": Verb(ARCHIVE, FOURTH, ("buffer", "batches")),
    "bounds": Verb(("archive", "-q", "--bounds", "lenet@3"), THIRD, ("fixed",)),
    "quantize": Verb(("quantize", "-q", "lenet@2", "--to", "fp16")),
    "gc": Verb(GC, HIDDEN, ("eager",)),
    "quarantine": Verb(("gc", "--grace", "1s", "-y", "-q"), HIDDEN, ("eager",)),
    "restore": Verb(RESTORE, TAKEN),
    "restore, then gc": Verb(RESTORE, TAKEN, ("collected between",)),
    "rm": Verb(("rm", "lenet@1")),
    "undo": Verb(("undo",)),
    "undo of rm": Verb(("undo",), [*SECOND, ["rm", "lenet@1"]]),
    "tag": Verb(("tag", "best", "lenet@1")),
    "mv": Verb(("mv", "lenet", "small")),
    "copy": Verb(("copy", "lenet@1", "wide")),
    "checkout": Verb(("checkout", "lenet@1", "--force")),
    "export": Verb(
        ("export", "lenet@1", "out.npz", "-f"), [*SECOND, ["export", "lenet@2", "out.npz"]]
    ),
    "checkout elsewhere": Verb(("checkout", "lenet@1", "--to", "out/there")),
    "copy edited": Verb(("copy", "lenet@1", "wide", "--set", "fc.out=12", "--force")),
    "eval to files": Verb(EVAL_TO_FILES, [*SECOND, "data", EVAL_TO_FILES]),
    "plots": Verb(
        ("plots", "lenet@2", "--output", "curves.html"),
        [*SECOND, ["plots", "lenet@1", "--output", "curves.html"]],
    ),
    "plan": Verb(("archive", "-q", "--dry-run", "--export-plan", "plan.json")),
    "config": Verb(
        ("config", "--repo", "gc.grace", "3d"), [*SECOND, ["config", "--repo", "gc.grace", "2d"]]
    ),
    "import": Verb(("import", "checkpoints", "step-200.safetensors", "--name", "brought")),
    "import boards": Verb(("import", "tensorboard", "runs", "--name", "boards"), [*SECOND, "runs"]),
    "eval": Verb(("eval", "-q", "lenet@2", "data.npz"), [*SECOND, "data"]),
    "derive": Verb(INTO),
    "evaluate": Verb(EVALUATE, [*SECOND, "a trainer"], ("inline",)),
    "publish": Verb(("publish", "-q", "lenet@2"), [*SECOND, ["remote", "add", "origin", "team"]]),
    "pull": Verb(("pull", "-q", "lenet@2"), TAKEN_BACK),
    "rebuild": Verb(("fsck", "--rebuild")),
    "older": Verb(("list",), release="schema-1"),
    "older, tag": Verb(("tag", "new", "lenet@1"), release="schema-2"),
}
