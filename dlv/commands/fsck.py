"""`dlv fsck`: verify the repository, rebuild its database, repair it."""

from __future__ import annotations

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import UsageError
from dlv.terminal.output import Line
from dlv.terminal.table import Items, Text


@command(
    "fsck",
    examples=["dlv fsck", "dlv fsck lenet@1 --quick", "dlv fsck --rebuild", "dlv fsck --repair"],
    exits={6: "errors were found; each is listed with the versions that it affects"},
)
@argument("refs", nargs=-1, metavar="[REF]..", complete="reference")
@option("--quick", is_flag=True, help="Check sizes, footers and rows only; read no weights.")
@option("--rebuild", is_flag=True, help="Rebuild the database from manifests and packs.")
@option("--repair", is_flag=True, help="Repair what can be repaired; quarantine the rest.")
@option(
    "--from", "source", metavar="DIR", help="With --repair, take intact data from this repository."
)
def run(
    call: Invocation,
    refs: tuple[str, ...],
    quick: bool,
    rebuild: bool,
    repair: bool,
    source: str | None,
) -> int | None:
    """Check or repair the repository.

    Verifies the hashes of packs, manifests and facts, decodes every tensor and compares the
    database row by row. With REF, only the weights and files of these versions are checked.
    --repair takes intact copies from quarantine, other packs or another repository; what is
    corrupt moves to quarantine. Nothing is ever deleted.
    """
    if repair and (refs or quick or rebuild):
        raise UsageError("--repair can only be combined with --from", hint="dlv fsck --repair")
    if source is not None and not repair:
        raise UsageError("--from requires --repair", hint=f"dlv fsck --repair --from {source}")
    call.mending, call.rebuilding = True, rebuild or repair
    repository = call.repository
    total = sum(path.lstat().st_size for path in repository.packs.glob("??/*"))
    with call.progress("Checking", total) as bar:
        import dlv.upkeep.check as check
        import dlv.views.faults as faults

        repaired = None
        if repair:
            import dlv.upkeep.repair as repairing
            import dlv.upkeep.small_files as small_files

            path = None if source is None else call.directory / source
            small = small_files.mend(repository)  # first: settings may be among them
            repaired = repairing.repair(repository, path, call.author, progress=bar.advance)
            repaired.mended[:0] = small
            report = repaired.report
        elif rebuild:
            report = check.rebuild(repository, progress=bar.advance)
        else:
            report = check.check(repository, refs, quick=quick, progress=bar.advance)
    counted = ", ".join(faults.count(kind, many) for kind, many in sorted(report.checked.items()))
    found = "ok" if not report.faults else faults.count("errors", len(report.faults))
    lines = [Line(Text(found, "bold"), f"checked {counted}")]
    if report.rebuilt is not None:
        lines.insert(0, Line(f"rebuilt the database: {faults.count('versions', report.rebuilt)}"))
    if repaired is not None:
        lines[:0] = faults.repaired(repaired.mended, every=call.output.verbose)
        lines += [
            Line("unrecoverable", label, Items(found)) for label, found in repaired.layers.items()
        ]
    call.output.emit(
        "fsck",
        {
            "checked": report.checked,
            "errors": [
                {
                    "object": error.object,
                    "kind": error.kind,
                    "why": error.why,
                    "versions": list(error.versions),
                    "tensors": list(error.matrices),
                    "newer": error.newer,
                }
                for error in report.faults
            ],
            "dangling": [{"kind": kind, "object": name} for kind, name in report.dangling],
            "rebuilt": report.rebuilt,
            "recovered": report.recovered,
            "head": repository.head,
            "repaired": [
                {"object": name, "from": where}
                for name, where in (repaired.mended if repaired is not None else ())
            ],
            "unrecoverable": {} if repaired is None else repaired.layers,
        },
        *faults.tables(report, every=call.output.verbose),
        *lines,
        ids=[error.object for error in report.faults],
    )
    if report.head_moved is not None:
        before, after = report.head_moved
        moved = f"HEAD is now at {after}" if after else "no versions, so HEAD is unset"
        call.output.warn(f"{moved} ({f'was {before}' if before else 'the old one is unknown'})")
    if report.dangling:
        many = faults.count("objects", len(report.dangling))
        what = "belongs" if len(report.dangling) == 1 else "belong"
        call.output.detail(f"{many} {what} to no version: a commit that did not finish")
    if not report.damaged:
        return 3 if report.faults else None
    affected = {version for error in report.faults for version in error.versions}
    if affected:
        call.output.message(f"{faults.count('versions', len(affected))} affected")
    if not repair:
        call.output.hint("dlv fsck --repair [--from OTHER_COPY]")
    if len(report.faults) > faults.MOST_ROWS and not call.output.verbose:
        call.output.hint(f"to list all {len(report.faults)} errors: dlv fsck -v")
    return 6
