"""Runs of small trials in a repository: a trainer of a few lines that can also misbehave."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import dlv.network.json_form as json_form
import dlv.training.workers.pool as pool
from dlv.metadata.trials import Trials
from dlv.repository.handle import Repository
from dlv.training.config import resolve, trial_id
from dlv.training.ledger.ledger import Ledger, NewTrial
from dlv.training.ledger.progress import Progress
from dlv.training.ledger.results import RunView
from dlv.training.ledger.settling import Budget
from dlv.training.trial_files import Held, TrialFiles

# Goes downhill in a bowl, with noise by (seed, step); each log is told to a file, too.
TRAINER = '''
    """A trainer for tests."""
    import os, signal, sys, time
    import numpy as np

    def train(net, config, steps, ckpt, log):
        fault, at = config.get("fault"), config.get("at", 0)
        w = np.array(ckpt.state.get("weight/w", net.weights("w")), "f4")
        for step in range(ckpt.step, steps):
            noise = np.random.default_rng([config.seed, step]).normal(0, 1, 4).astype("f4")
            w = w - np.float32(config["base_lr"]) * (w + np.float32(0.05) * noise)
            done = step + 1
            if done == at:
                misbehave(fault, net, config)
            time.sleep(config.get("pace", 0.0))
            if done % config.log_every == 0 or done == steps:
                with open(net.folder / "steps.txt", "a") as file:
                    file.write(f"{ckpt.step} {done}\\n")
                loss = float("nan") if fault == "nan" and done >= at else float((w * w).sum())
                print("at", done, flush=True)
                if log(done, {"loss": loss}, {"weight/w": w}):
                    return

    def misbehave(fault, net, config):
        while fault == "wait" and not os.path.exists(config["until"]):
            time.sleep(0.01)
        if fault == "raise":
            raise ValueError("the moon is full")
        if fault == "exit":
            sys.exit(3)
        if fault == "return":
            raise SystemExit(0)
        if fault == "hang":
            time.sleep(600)
        if fault == "memory":
            raise MemoryError
        if fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "killed once" and not (net.folder / "was").exists():
            (net.folder / "was").touch()
            os.kill(os.getpid(), signal.SIGKILL)
'''

NETWORK, _ = json_form.read(
    {
        "dlv_network": 1,
        "inputs": [{"name": "x", "shape": ["B", 4], "dtype": "float32"}],
        "nodes": [
            {
                "name": "fc",
                "op": "FULL",
                "attrs": {"out": 1, "bias": False},
                "inputs": ["x"],
                "params": {"weight": "w"},
            }
        ],
        "outputs": ["fc"],
    }
)


class Place:
    """A repository in `folder` with the trainer beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "bowl.py").write_text(textwrap.dedent(TRAINER))
        self.repository = Repository.init(folder)[0]
        self.seen: list[Progress] = []

    def open_run(
        self,
        configs: Sequence[Mapping[str, Any]],
        *,
        run: str = "r" * 64,
        rules: Sequence[Mapping[str, Any]] = (),
        budget: Budget | None = None,
        steps: int = 40,
        log_every: int = 10,
        growing: bool = False,
    ) -> str:
        """A trial for each of `configs`."""
        base = {"trainer": "bowl:train", "steps": steps, "log_every": log_every, "base_lr": 0.1}
        trials = []
        for ordinal, given in enumerate(configs, 1):
            config = resolve({**base, **given}, [], NETWORK)
            name = trial_id(NETWORK.id, "start", config, {}, "1")
            files = TrialFiles(self.repository.trials_folder / name)
            start = {"w": Held("float32", (1, 4), np.ones((1, 4), "<f4").tobytes())}
            files.create(NETWORK, config, start, {"directory": str(self.folder)})
            text = json.dumps(config.document())
            trials.append(
                NewTrial(name, ordinal, NETWORK.id, text, config.seed, "bowl", dict(given))
            )
        with self.store() as store:
            Ledger(store).open_run(
                *(run, "evaluate m", {}, rules, budget or Budget(), trials),
                steps=steps,
                growing=growing,
            )
        return run

    def store(self) -> Trials:
        return Trials(self.repository.trials_path)

    def train(self, run: str, workers: int = 2, **how: Any) -> RunView:
        self.seen = []
        with self.store() as store:
            pool.train(
                store,
                run,
                workers=workers,
                progress=self.seen.append,
                command=pool.worker_command(self.folder, run),
                environ=pool.worker_environment(os.environ),
                **how,
            )
        return self.view(run)

    def view(self, run: str) -> RunView:
        with self.store() as store:
            return Ledger(store).run(run)

    def table(self, run: str) -> list[tuple[Any, ...]]:
        """What a result is made of, in its order."""
        with self.store() as store:
            found = Ledger(store).result(run)
            return [
                (t.rank, t.trial, t.state, t.step, t.verdict, t.why, dict(t.last), dict(t.cut))
                for t in found
            ]

    def curves(self, run: str) -> dict[str, Any]:
        with self.store() as store:
            ledger = Ledger(store)
            return {t.trial: ledger.curves(t.trial) for t in ledger.run(run).trials}

    def steps_of(self, trial: str) -> list[tuple[int, int]]:
        """(step at which the slice began, step) of each log that the trainer came to."""
        lines = (self.repository.trials_folder / trial / "steps.txt").read_text().splitlines()
        return [(int(line.split()[0]), int(line.split()[1])) for line in lines]

    def news(self, kind: str) -> list[str]:
        return [news.text for seen in self.seen for news in seen.news if news.kind == kind]
