"""`dlv trials`: sweeps, their trials, and why they ended."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from dlv.commands.shared import reporting
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import Conflict, NotFound, UsageError

if TYPE_CHECKING:
    import dlv.views.trials as view
    from dlv.metadata.trials import Trials
    from dlv.training.ledger.ledger import Ledger
    from dlv.training.ledger.results import RunView
    from dlv.training.trial_files import TrialFiles


@command(
    "trials",
    examples=["dlv trials", "dlv trials --json", "dlv trials -q"],
    exits={4: "no such sweep or trial", 5: "the sweep to delete is running"},
)
@argument("run", required=False, metavar="[SWEEP]", complete="run")
@argument("trial", required=False, metavar="[TRIAL]")
@option("--stop", is_flag=True, help="Stop the sweep at the next log of each trial.")
@option("--delete", is_flag=True, help="Delete the sweep, its trials and their checkpoints.")
@option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@reporting.report_options()
def run(
    call: Invocation,
    run: str | None,
    trial: str | None,
    stop: bool,
    delete: bool,
    yes: bool,
    output: str | None,
    show: bool,
) -> None:
    """List sweeps, or show the trials of one.

    SWEEP is the beginning of an id, or latest. Its trials are ranked, with the state of each and
    the reason. TRIAL is a number or the beginning of an id: it shows everything that was logged,
    and errors. Run the query again to resume a stopped sweep. --delete keeps versions, and trials
    that another sweep has.
    """
    for name, chosen in {"--stop": stop, "--delete": delete}.items():
        if chosen and (run is None or trial is not None):
            raise UsageError(f"{name} requires a SWEEP", hint="dlv trials")
    target = reporting.target(call, output, show)
    if target is not None and (run is None or trial is not None):
        raise UsageError("--output requires a SWEEP", hint="dlv trials latest -o sweep.html")
    if not call.repository.trials_path.exists():
        if run is not None:
            raise NotFound(f"no such sweep: {run}", why="no query has run `evaluate` here")
        _list(call, [])
        return
    import dlv.metadata.trials as trials

    with trials.Trials(call.repository.trials_path) as store:
        import dlv.training.ledger.ledger as ledgers

        book = ledgers.Ledger(store)
        if run is None:
            _list(call, book.runs())
            return
        name = _named(store, run)
        if delete:
            _delete(call, book, name, yes=yes)
            return
        if stop:
            book.stop(name)
        if trial is None:
            _run(call, book, name, target, show=show)
        else:
            _trial(call, book, name, trial)


def _named(store: Trials, word: str) -> str:
    """The id of a run that is given by its beginning, or as `latest`."""
    known = [str(row["id"]) for row in store.runs()]
    if word == "latest" and known:
        return known[-1]
    fit = [each for each in known if each == word or (len(word) >= 4 and each.startswith(word))]
    if len(fit) != 1:
        why = f"{len(fit)} ids begin like this" if fit else None
        if not fit and len(word) < 4 and any(each.startswith(word) for each in known):
            why = "give at least four characters of its id"
        raise NotFound(f"no such sweep: {word}", why=why, hint="dlv trials")
    return fit[0]


def _list(call: Invocation, runs: list[RunView]) -> None:
    import dlv.views.trials as view

    document, table = view.runs(runs)
    call.output.emit("trials", document, table)
    if not runs:
        call.output.message("no sweeps; a query with `evaluate` starts one")


def _sparkline(call: Invocation) -> view.Sparkline | None:
    """Only where a person looks."""
    return call.output.sparkline if call.output.terminal else None


def _run(call: Invocation, book: Ledger, name: str, target: Path | None, *, show: bool) -> None:
    import dlv.views.trials as view

    found, results = book.run(name), book.result(name)
    disk = sum(_files(call, each.trial).checkpoint_bytes() for each in results)
    document, blocks = view.one_run(found, results, book.curves, _sparkline(call), disk=disk)
    if target is not None:
        import dlv.ui.frame as frames
        import dlv.ui.sweep as pages

        sections = pages.sections(found, results, book.curves, frames.Frame(call.output.now))
        query = " ".join(found.text.split())
        reporting.write_report(target, f"sweep {name[:7]}", sections, about=query)
        reporting.deliver(
            call, "trials", document, target, show=show, ids=[each.trial for each in results]
        )
        return
    call.output.emit("trials", document, *blocks, ids=[each.trial for each in results])


def _files(call: Invocation, trial: str) -> TrialFiles:
    from dlv.training.trial_files import TrialFiles

    return TrialFiles(call.repository.trials_folder / trial)


def _delete(call: Invocation, book: Ledger, name: str, *, yes: bool) -> None:
    from dlv.terminal.output import Line
    from dlv.terminal.table import Id

    found = book.run(name)
    if found.condition == "running":
        raise Conflict(f"sweep {name[:7]} is running", hint=f"dlv trials {name[:7]} --stop")
    call.confirm(f"sweep {name[:7]} and what its trials came to will be deleted", yes=yes)
    trials = book.forget(name)
    for trial in trials:
        shutil.rmtree(call.repository.trials_folder / trial, ignore_errors=True)
    document = {"deleted": {"sweep": name, "trials": trials}}
    call.output.emit("trials", document, Line("deleted sweep", Id(name)), ids=[name])


def _trial(call: Invocation, book: Ledger, name: str, word: str) -> None:
    results = book.result(name)
    wanted = [
        each for each in results if word in (str(each.ordinal), f"#{each.ordinal}", each.trial)
    ] or [each for each in results if len(word) >= 4 and each.trial.startswith(word)]
    if len(wanted) != 1:
        raise NotFound(
            f"{f'{len(wanted)} trials match' if wanted else 'no such trial:'} {word}",
            why=f"sweep {name[:7]} has trials #1 to #{len(results)}",
        )
    import dlv.views.trials as view

    found = wanted[0]
    folder = call.repository.trials_folder / found.trial
    document, blocks = view.one_trial(found, book.curves(found.trial), folder, _sparkline(call))
    call.output.emit("trials", document, *blocks, ids=[found.trial])
