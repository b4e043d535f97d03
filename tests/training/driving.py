"""A driver as a process of its own, to be killed: `python -m tests.training.driving DIR RUN N`.

With `ray` behind that it is one of Ray.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

import dlv.training.workers.pool as pool
import dlv.training.workers.ray_pool as ray_pool
from dlv.metadata.trials import Trials
from dlv.repository.handle import Repository
from dlv.training.ledger.progress import Progress
from dlv.training.trainers.interface import Readers


def show(progress: Progress) -> None:
    for news in progress.news:
        print(news.kind, news.text)
    print("steps", progress.steps, "workers", progress.workers, flush=True)


def main(folder: str, run: str, workers: str, where: str = "local") -> int:
    here = Repository.find(Path(folder))
    with Trials(here.trials_path) as store:
        try:
            if where == "ray":
                ray_pool.train(
                    *(store, here.trials_folder, run),
                    reopen=partial(Trials, here.trials_path),
                    readers=Readers(),
                    workers=int(workers),
                    progress=show,
                )
            else:
                pool.train(
                    *(store, run),
                    workers=int(workers),
                    progress=show,
                    command=pool.worker_command(Path(folder), run),
                    environ=pool.worker_environment(os.environ),
                )
        except pool.Interrupted as error:
            print("interrupted", error.hint, flush=True)
            return error.exit_code
    print("over", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
