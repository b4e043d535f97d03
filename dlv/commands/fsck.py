"""`dlv fsck`: is everything still what it was?"""

from __future__ import annotations

from dlv.canonical import is_hash
from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import UsageError
from dlv.terminal.output import Line
from dlv.terminal.table import Cell, Column, Id, Items, Table, Text


@command(
    "fsck",
    examples=["dlv fsck", "dlv fsck lenet@1 --quick", "dlv fsck --rebuild", "dlv fsck --repair"],
    exits={6: "there are faults; each is listed with the versions it reaches"},
)
@argument("refs", nargs=-1, metavar="[REF]..", complete="reference")
@option("--quick", is_flag=True, help="Sizes, footers and rows only; no weights are read.")
@option("--rebuild", is_flag=True, help="Make the catalogue again from manifests and packs.")
@option("--repair", is_flag=True, help="Mend what can be mended; the rest is set aside.")
@option("--from", "source", metavar="DIR", help="For --repair: a repository that has it all.")
def run(
    call: Invocation,
    refs: tuple[str, ...],
    quick: bool,
    rebuild: bool,
    repair: bool,
    source: str | None,
) -> int | None:
    """Check the repository, rebuild its catalogue, or repair it.

    Hashes of packs, manifests and facts, every matrix decoded, the catalogue row by row. With
    REF, the weights and files of these versions only. --repair takes the same bytes from
    quarantine or another repository, or the same matrix from another pack; what is damaged is
    moved to quarantine. Nothing is ever deleted.
    """
    if repair and (refs or quick or rebuild):
        raise UsageError("--repair goes with --from only", hint="dlv fsck --repair")
    if source is not None and not repair:
        raise UsageError("--from is for --repair", hint=f"dlv fsck --repair --from {source}")
    call.mending, call.rebuilding = True, rebuild or repair
    repository = call.repository
    total = sum(path.lstat().st_size for path in repository.packs.glob("??/*"))
    with call.progress("check", total) as bar:
        import dlv.upkeep.check as check

        mended = None
        if repair:
            import dlv.upkeep.repair as repairing
            import dlv.upkeep.small_files as small_files

            path = None if source is None else call.directory / source
            small = small_files.mend(repository)  # first: settings may be among them
            mended = repairing.repair(repository, path, call.author, progress=bar.advance)
            mended.mended[:0] = small
            report = mended.report
        elif rebuild:
            report = check.rebuild(repository, progress=bar.advance)
        else:
            report = check.check(repository, refs, quick=quick, progress=bar.advance)
    table = Table(
        ["kind", Column("object", least=20), Column("why", least=20), "versions"],
        [[Text(f.kind, "red"), _object(f.object), f.why, Items(f.versions)] for f in report.faults],
    )
    counted = ", ".join(_count(kind, many) for kind, many in sorted(report.checked.items()))
    lines = [Line(Text("ok" if not report.faults else "faults", "bold"), f"checked {counted}")]
    if report.rebuilt is not None:
        lines.insert(0, Line(f"rebuilt the catalogue: {report.rebuilt} versions"))
    if mended is not None:
        lines[:0] = [Line("mended", Id(name), where) for name, where in mended.mended]
        lines += [Line("lost", label, Items(found)) for label, found in mended.layers.items()]
    call.output.emit(
        "fsck",
        {
            "checked": report.checked,
            "faults": [
                {
                    "object": fault.object,
                    "kind": fault.kind,
                    "why": fault.why,
                    "versions": list(fault.versions),
                    "matrices": list(fault.matrices),
                    "newer": fault.newer,
                }
                for fault in report.faults
            ],
            "dangling": [{"kind": kind, "object": name} for kind, name in report.dangling],
            "rebuilt": report.rebuilt,
            "recovered": report.recovered,
            "mended": [
                {"object": name, "from": where}
                for name, where in (mended.mended if mended is not None else ())
            ],
            "lost": {} if mended is None else mended.layers,
        },
        *([table] if report.faults else []),
        *lines,
        ids=[fault.object for fault in report.faults],
    )
    if report.dangling:
        many = len(report.dangling)
        what = f"{many} objects belong" if many > 1 else "1 object belongs"
        call.output.detail(f"{what} to no version: a commit that did not finish")
    if report.damaged:
        call.output.hint(
            "what is listed under versions may not come back whole; copy it from elsewhere"
        )
        return 6
    return 3 if report.faults else None


def _object(name: str) -> Cell:
    return Id(name) if is_hash(name) else name


def _count(kind: str, many: int) -> str:
    odd = {"matrices": "matrix", "bounds": "bounds", "files.git": "files.git"}
    one = odd.get(kind, kind.removesuffix("s"))
    return f"{many} {one if many == 1 else kind}"
