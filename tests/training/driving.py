"""A driver as a process of its own, to be killed: `python -m tests.training.driving DIR RUN N`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import dlv.training.pool as pool
from dlv.metadata.trials import Trials
from dlv.repository import Repository
from dlv.training.progress import Progress


def show(progress: Progress) -> None:
    for news in progress.news:
        print(news.kind, news.text)
    print("steps", progress.steps, "workers", progress.workers, flush=True)


def main(folder: str, run: str, workers: str) -> int:
    here = Path(folder)
    with Trials(Repository.find(here).trials_path) as store:
        try:
            pool.train(
                *(store, run),
                workers=int(workers),
                progress=show,
                command=pool.worker_command(here, run),
                environ=pool.worker_environment(os.environ),
            )
        except pool.Interrupted as error:
            print("interrupted", error.hint, flush=True)
            return error.exit_code
    print("over", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
