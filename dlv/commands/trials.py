"""`dlv trials`: the runs that `evaluate` began, their trials, and why they ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import NotFound, UsageError

if TYPE_CHECKING:
    import dlv.views.trials as view
    from dlv.metadata.trials import Trials
    from dlv.training.ledger.ledger import Ledger
    from dlv.training.ledger.results import RunView


@command(
    "trials",
    examples=["dlv trials", "dlv trials --json", "dlv trials -q"],
    exits={4: "no such run, or no such trial in it"},
)
@argument("run", required=False, metavar="[RUN]", complete="run")
@argument("trial", required=False, metavar="[TRIAL]")
@option("--stop", is_flag=True, help="End the run: its trials stop at their next log.")
def run(call: Invocation, run: str | None, trial: str | None, stop: bool) -> None:
    """List the runs of `evaluate`, or show the trials of one.

    RUN is the id of a run or its beginning, or `latest`. Its trials are ranked, each with what
    became of it and why. With TRIAL, the number of a trial or the beginning of its id, all that
    it logged is shown, and what went wrong. A run that was stopped goes on when its query is
    asked again.
    """
    if stop and (run is None or trial is not None):
        raise UsageError("--stop takes a run", hint="dlv trials lists them")
    if not call.repository.trials_path.exists():
        if run is not None:
            raise NotFound(f"no run is `{run}`", why="no query has evaluated anything here")
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
        if stop:
            book.stop(name)
        if trial is None:
            _run(call, book, name)
        else:
            _trial(call, book, name, trial)


def _named(store: Trials, word: str) -> str:
    """The id of a run that is given by its beginning, or as `latest`."""
    known = [str(row["id"]) for row in store.runs()]
    if word == "latest" and known:
        return known[-1]
    fit = [each for each in known if each == word or (len(word) >= 4 and each.startswith(word))]
    if len(fit) != 1:
        count = f"there {'is' if len(known) == 1 else 'are'} {_runs(len(known))}"
        why = f"the ids of {_runs(len(fit))} begin so" if fit else count
        if not fit and len(word) < 4 and any(each.startswith(word) for each in known):
            why = "the beginning of an id has four characters at least"
        raise NotFound(f"no run of trials is `{word}`", why=why, hint="dlv trials lists them")
    return fit[0]


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count != 1)}"


def _list(call: Invocation, runs: list[RunView]) -> None:
    import dlv.views.trials as view

    document, table = view.runs(runs)
    call.output.emit("trials", document, table)
    if not runs:
        call.output.message("no runs; a query with evaluate begins one")


def _sparkline(call: Invocation) -> view.Sparkline | None:
    """Only where a person looks."""
    return call.output.sparkline if call.output.terminal else None


def _run(call: Invocation, book: Ledger, name: str) -> None:
    import dlv.views.trials as view

    found, results = book.run(name), book.result(name)
    document, blocks = view.one_run(found, results, book.curves, _sparkline(call))
    call.output.emit("trials", document, *blocks, ids=[each.trial for each in results])


def _trial(call: Invocation, book: Ledger, name: str, word: str) -> None:
    results = book.result(name)
    wanted = [
        each for each in results if word in (str(each.ordinal), f"#{each.ordinal}", each.trial)
    ] or [each for each in results if len(word) >= 4 and each.trial.startswith(word)]
    if len(wanted) != 1:
        raise NotFound(
            f"{'more than one' if wanted else 'no'} trial of run {name[:7]} is `{word}`",
            why=f"there are #1 to #{len(results)}" if len(results) > 1 else "there is #1 alone",
        )
    import dlv.views.trials as view

    found = wanted[0]
    folder = call.repository.trials_folder / found.trial
    document, blocks = view.one_trial(found, book.curves(found.trial), folder, _sparkline(call))
    call.output.emit("trials", document, *blocks, ids=[found.trial])
