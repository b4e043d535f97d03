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
        4: "no such metric or quarantine",
        6: "corrupt data; nothing is deleted",
        9: "deletion was not confirmed",
    },
)
@option(
    "--keep-last",
    type=click.IntRange(min=1),
    metavar="N",
    help="First remove all but the newest N versions.",
)
@option(
    "--keep-best",
    multiple=True,
    metavar="METRIC:N",
    help="First remove all but the best N versions.",
)
@option("--grace", metavar="TIME", help="Grace period, such as 14d, 12h or 0 [default: gc.grace].")
@option("--restore", metavar="ID", help="Restore everything from this quarantine.")
@option("--dry-run", is_flag=True, help="Show what would be deleted.")
@option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def run(
    call: Invocation,
    keep_last: int | None,
    keep_best: tuple[str, ...],
    grace: str | None,
    restore: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Delete removed versions after the grace period.

    What only removed versions need is moved to quarantine, and deleted after the same time again;
    until then --restore brings it back. --keep-last and --keep-best first remove other versions
    of each model, but never HEAD, tagged versions or their delta bases. Folders of stopped
    trials are deleted, too.
    """
    import dlv.views.collected as view

    repository = call.repository
    if restore is not None:
        if keep_last is not None or keep_best or grace is not None or dry_run:
            raise UsageError(
                "--restore cannot be combined with other options", hint="dlv gc --restore ID"
            )
        import dlv.upkeep.restoring as restoring

        found = restoring.restore(repository, restore, call.author)
        document, blocks = view.restored(found)
        call.output.emit("gc", document, *blocks)
        call.output.hint(
            "the versions are still removed; to restore them, find the removal: dlv undo --list"
        )
        return
    import dlv.upkeep.collect as collect
    import dlv.upkeep.mark as mark
    import dlv.upkeep.retention as retention

    request = collect.Request(
        mark.duration(grace if grace is not None else str(call.config.get("gc.grace"))),
        retention.Policy(keep_last, tuple(retention.best(text) for text in keep_best)),
        call.author,
    )
    outcome = collect.plan(repository, request, compared=dry_run)
    if not dry_run:
        if outcome.deleted or outcome.trials:
            call.confirm(
                f"Permanently delete {outcome.freed} bytes? (list them: dlv gc --dry-run)", yes=yes
            )
        outcome = collect.collect(
            repository, request, progress=call.progress, idle=not outcome.anything
        )
    document, blocks = view.collected(outcome)
    call.output.emit("gc", document, *blocks, ids=[hidden.version.id for hidden, _ in outcome.due])
    if outcome.trials_stay is not None:
        call.output.warn(f"kept all folders of trials: {outcome.trials_stay}")
    if outcome.stuck is not None:
        call.output.warn(f"packs not rewritten: {outcome.stuck}")
    if outcome.interrupted is not None:
        call.output.hint(f"to {'finish it' if dry_run else 'delete the rest'}: dlv gc")
    elif not outcome.anything:
        call.output.message("nothing to do")
    elif not dry_run and any(choice.why is None for choice in outcome.choices) and request.grace:
        call.output.hint("to restore what was removed now: dlv undo")
    elif not dry_run and outcome.due and outcome.kept:
        call.output.hint("to restore it from quarantine: dlv gc --restore ID")
