"""`dlv gc`: free what was removed."""

from __future__ import annotations

import click

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import command, option
from dlv.errors import UsageError


@command(
    "gc",
    examples=[
        "dlv gc --dry-run",
        "dlv gc --keep-last 10 --keep-best accuracy:3 --dry-run",
        "dlv gc --grace 0 -y",
    ],
    exits={
        4: "no version has the metric, or no quarantine is called so",
        5: "others read or write for too long",
        6: "something cannot be read that tells what is needed: nothing is taken",
        9: "something would be deleted for good, and nobody confirmed it",
    },
)
@option("--keep-last", type=click.IntRange(min=1), metavar="N", help="First remove older ones.")
@option("--keep-best", multiple=True, metavar="METRIC:N", help="First remove the others.")
@option("--grace", metavar="TIME", help="How long things stay: 14d, 12h, or 0 for not at all.")
@option("--restore", metavar="ID", help="Take everything back out of this quarantine.")
@option("--dry-run", is_flag=True, help="Only say what would be done.")
@option("-y", "--yes", is_flag=True, help="Delete without asking.")
def run(
    call: Invocation,
    keep_last: int | None,
    keep_best: tuple[str, ...],
    grace: str | None,
    restore: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Take out of the repository what was removed long enough ago.

    Versions and snapshots that were removed or undone for the time of grace (gc.grace, 14d)
    leave the repository. What only they need is moved to a quarantine, from which --restore
    brings it back, and deleted when it has lain there for the same time. A --restore that was
    interrupted is finished first, and nothing is taken. --keep-last and
    --keep-best first remove all other versions of each name, as dlv rm does and dlv undo takes
    back, but never HEAD, what is tagged, or what the rest is stored as differences to.

    Folders of trials that a rule stopped, or that belong to no run, are deleted after the same
    time: the query that made them would train them again.
    """
    import dlv.views.collected as view

    repository = call.repository
    if restore is not None:
        if keep_last is not None or keep_best or grace is not None or dry_run:
            raise UsageError("--restore goes with no other option", hint="dlv gc --restore ID")
        import dlv.upkeep.restoring as restoring

        found = restoring.restore(repository, restore, call.author)
        document, blocks = view.restored(found)
        call.output.emit("gc", document, *blocks)
        call.output.hint("versions are removed as before gc; dlv undo --list shows how to go on")
        return
    import dlv.upkeep.collect as collect
    import dlv.upkeep.mark as mark
    import dlv.upkeep.retention as retention

    request = collect.Request(
        mark.duration(grace if grace is not None else str(call.config.get("gc.grace"))),
        retention.Policy(keep_last, tuple(retention.best(text) for text in keep_best)),
        call.author,
    )
    outcome = collect.plan(repository, request)
    if not dry_run:
        if outcome.deleted or outcome.trials:
            call.confirm(f"Delete {outcome.freed} bytes for good? (--dry-run lists them)", yes=yes)
        outcome = collect.collect(repository, request, progress=call.progress)
    document, blocks = view.collected(outcome)
    call.output.emit("gc", document, *blocks, ids=[hidden.version.id for hidden, _ in outcome.due])
    if outcome.trials_stay is not None:
        call.output.warn(f"folders of trials were left alone: {outcome.trials_stay}")
    if outcome.stuck is not None:
        call.output.warn(f"packs were not written anew: {outcome.stuck}")
    if outcome.interrupted is not None:
        call.output.hint(f"dlv gc {'finishes it' if dry_run else 'again takes what may go'}")
    elif not outcome.anything:
        call.output.message("nothing to do")
    elif not dry_run and any(choice.why is None for choice in outcome.choices) and request.grace:
        call.output.hint("dlv undo brings back what was removed now")
    elif not dry_run and outcome.due and outcome.kept:
        call.output.hint("dlv gc --restore ID brings it back while it is in quarantine")
