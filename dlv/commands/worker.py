"""`dlv worker`, which no help lists: what `evaluate` starts to train trials."""

from __future__ import annotations

import os
import signal
from functools import partial

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command


@command("worker", examples=["dlv worker RUN NAME"])
@argument("run")
@argument("name")
def run(call: Invocation, run: str, name: str) -> None:
    """Train trials of a run until standard input is closed."""
    import dlv.adapters.data.sets as sets
    import dlv.disk.children as children
    import dlv.metadata.trials as trials
    import dlv.training.trainers.rows as trainer_rows
    import dlv.training.workers.worker as worker

    repository = call.repository
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides what Ctrl-C means
    children.end_with_parent(partial(os.killpg, os.getpgrp(), signal.SIGKILL))
    lifeline = worker.Lifeline(worker.private(0, os.O_RDONLY))
    voice = worker.Voice(worker.private(1, os.O_WRONLY))
    prints = trainer_rows.Fingerprints(repository.cache / trainer_rows.CACHE, sets.fingerprint)
    rows = partial(sets.open_parts, digest=prints)
    with trials.Trials(repository.trials_path) as store:
        import dlv.events.logs.batches as batches
        import dlv.training.trainers.interface as interface
        import dlv.training.workers.owners as owners

        voice.ready()
        worker.work(
            store,
            repository.trials_folder,
            interface.Readers(rows=rows, events=batches.Tail),
            owner=owners.Owner.here(name),
            runs=[run],
            stop=lifeline.cut,
            beat=voice.beat,
        )
