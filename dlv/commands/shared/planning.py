"""What `archive` and `commit` ask of a storage plan and of bounds, by options and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlv.commands.shared.invocation import Invocation
from dlv.errors import DlvError, UsageError

if TYPE_CHECKING:
    import dlv.archiving.bounding.run as bounding
    import dlv.archiving.proposal as proposal


def request(call: Invocation, refs: tuple[str, ...], **given: Any) -> proposal.Request:
    """Budgets and speeds beside what was given."""
    import dlv.archiving.budgets as budgets
    import dlv.archiving.proposal as proposal
    import dlv.archiving.speeds as speeds

    setting = call.config.get
    policy = budgets.Policy(
        *(setting("archive.hot"), setting("archive.normal"), setting("archive.cold")),
        enough=setting("archive.enough"),
        alpha=budgets.factor(given.pop("alpha", None)),
        overrides=tuple(budgets.override(text) for text in given.pop("budget", ())),
    )
    return proposal.Request(
        references=refs,
        algorithm=given.pop("algorithm", None) or setting("archive.algorithm"),
        policy=policy,
        jobs=call.jobs,
        author=call.author,
        speeds=speeds.of_machine(speeds.folder(call.environ)),
        **given,
    )


def deadline(duration: str | None) -> float | None:
    """When `--for TIME` is over, as `time.monotonic` counts."""
    if duration is None:
        return None
    import time

    from dlv.upkeep.mark import duration as parsed

    return time.monotonic() + parsed(duration).total_seconds()


def after_commit(call: Invocation, version_id: str, parents: tuple[str, ...]) -> int | None:
    """A new version and its parents stored as small as they may be; the bytes that it saves.

    The version is there, whatever becomes of this.
    """
    try:
        import dlv.archiving.archive as archiving

        asked = request(call, (version_id, *parents), local=True)
        outcome = archiving.archive(call.repository, asked, progress=call.progress)
    except DlvError as error:
        why = f" ({error.why})" if error.why else ""
        call.output.warn(f"committed, but not archived: {error.message}{why}")
        return None
    return outcome.before - outcome.after


def make_bounds(
    call: Invocation,
    refs: tuple[str, ...],
    calibration: str | None = None,
    *,
    config: str | None = None,
    sets: tuple[str, ...] = (),
    lenient: bool = False,
) -> bounding.Outcome:
    """Bounds of these versions, or of the latest ones, by data that is read as `eval` reads it."""
    import dlv.archiving.bounding.run as bounding
    import dlv.evaluation.data as settings

    file = None if config is None else str(call.directory / config)
    said = settings.read_settings(file, sets)
    given = bounding.Asked(calibration or said.input_data, said.data, call.directory)
    asked = bounding.Request(refs, given, call.author, lenient)
    return bounding.bound(call.repository, asked, progress=call.progress)


def tell_waiting(call: Invocation, packs: int) -> None:
    """Old packs that an archive could not remove yet."""
    if packs:
        call.output.hint(
            f"{packs} old packs are still being read; to delete them later: dlv archive"
        )


def bounds_after_commit(call: Invocation, version_id: str, *, requested: bool) -> str | None:
    """Bounds of a new version, if it is one that can have them: the record's hash.

    `requested`: the user wants them of this version, so a failure is worth a warning.
    """
    try:
        outcome = make_bounds(call, (version_id,), lenient=not requested)
    except DlvError as error:
        why = f" ({error.why})" if error.why else ""
        call.output.warn(f"committed, but without bounds: {error.message}{why}")
        return None
    return outcome.versions[0].record if outcome.versions else None


def alone(name: str, options: dict[str, Any], *, others: str) -> None:
    """Refuse an option together with any of the others."""
    for other in others.split():
        if options[other] not in (None, False, ()):
            words = other.replace("_", "-")
            raise UsageError(f"--{name} and --{words} cannot be combined")
