"""`fsck --repair`: every damaged object replaced by the same bytes from elsewhere, or set aside.

In order: a copy in quarantine or in another repository, the same content by another way, a
catalogue made again. What cannot be had is named with the versions and layers that it reaches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import dlv.recovery.catalogue_log as catalogue_log
import dlv.recovery.compare as comparing
import dlv.recovery.rebuild as rebuilding
import dlv.recovery.superseded as superseded
import dlv.repository.handle as repositories
import dlv.repository.quarantine as quarantine
import dlv.upkeep.check as checking
import dlv.upkeep.repairing.contents as contents
from dlv.errors import Damaged, DlvError, UsageError
from dlv.metadata import dump, versions
from dlv.objects.manifest import Manifest
from dlv.pas.chunks import SUFFIX
from dlv.repository.handle import Repository
from dlv.upkeep.check import Progress, Report
from dlv.upkeep.repairing.copies import Copies, mend_files


@dataclass
class Repaired:
    """What was mended and from where; the report is of what is left."""

    report: Report
    before: int  # faults found at first
    mended: list[tuple[str, str]] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)
    layers: dict[str, list[str]] = field(default_factory=dict)  # version -> what it has lost


def repair(
    repository: Repository, source: Path | None, author: str, *, progress: Progress
) -> Repaired:
    """The other repository is only read; nothing in it is believed without its hash."""
    other = None if source is None else _other(repository, source)
    copies = Copies(repository, None if other is None else other.path)
    log = _log(repository)
    first = _check(repository, progress)
    if first is not None and not first.damaged:
        return Repaired(first, len(log), log)
    with superseded.removing(repository):
        _whole(repository, copies, first)
        _ledger(copies, first)
    mended = log + list(copies.found)
    if first is None or any(f.kind == "catalogue" for f in first.faults) or mended:
        rebuilding.rebuild(repository)
    outcome = Repaired(checking.check(repository), len(first.faults) if first else 1, mended)
    with superseded.removing(repository):
        _contents(repository, other, author, outcome)
        copies.found.clear()
        mend_files(copies, _manifests(repository))
        outcome.mended += copies.found
    if outcome.report.damaged:
        outcome.report = checking.check(repository)
    _name_layers(repository, outcome)
    if other is not None:
        other.close()
    return outcome


def _other(repository: Repository, source: Path) -> Repository:
    found = Repository.find(source)
    if found.path == repository.path:
        raise UsageError("--from names this very repository", hint="give the path of a copy")
    return found


def _log(repository: Repository) -> list[tuple[str, str]]:
    """A byte of the catalogue's log that is wrong is put right before anybody reads it."""
    log = comparing.log_of(repository)
    if log is None or not log.changes:
        return []
    with superseded.removing(repository):
        log = comparing.log_of(repository)
        if log is not None and catalogue_log.mend(log):
            many = f"{log.behind} commit{'' if log.behind == 1 else 's'}"
            return [(log.path.name, f"its checksums: {many} can be read again")]
    return []


def _check(repository: Repository, progress: Progress) -> Report | None:
    """None: the catalogue cannot even be opened."""
    try:
        return checking.check(repository, progress=progress)
    except Damaged:
        repository.close()
        return None


def _whole(repository: Repository, copies: Copies, report: Report | None) -> None:
    """Facts, manifests and packs, each the same file from elsewhere."""
    kinds = {
        "fact": (repository.facts, ".json"),
        "manifest": (repository.manifests, ".json"),
        "pack": (repository.packs, SUFFIX),
    }
    for kind, (root, suffix) in kinds.items():
        if report is not None:
            bad = {fault.object for fault in report.faults if fault.kind == kind}
        else:
            bad = {name for name, path in repositories.stored(root, suffix) if _wrong(name, path)}
        for name in sorted(bad):
            copies.hashed(root, name, suffix)


def _ledger(copies: Copies, report: Report | None) -> None:
    """Trials that were not over start again; their results are in versions."""
    if report is not None and any(fault.kind == "trials" for fault in report.faults):
        copies.set_aside([f"trials.db{end}" for end in ("", "-wal", "-shm")])
        copies.found.append(("trials.db", "set aside, a new one is made with the next trials"))


def _wrong(name: str, path: Path) -> bool:
    try:
        return checking.hash_file(path, lambda _: None) != name
    except (OSError, DlvError):
        return True


def _contents(
    repository: Repository, other: Repository | None, author: str, outcome: Repaired
) -> None:
    """Packs of which there is no copy: what was in them goes into new ones."""
    faults = outcome.report.faults
    packs = [fault.object for fault in faults if fault.kind == "pack" and not fault.newer]
    broken = [name for fault in faults for name in fault.matrices]
    if packs or broken:
        wanted = contents.lost(repository, packs, broken)
        outcome.mended += contents.store_anew(repository, wanted, other, author)
        contents.forget(repository, packs)
    paths = [repository.packs / name[:2] / (name + SUFFIX) for name in packs]
    there = [path for path in paths if path.exists()]
    if there:
        place = quarantine.begin(repository, there, "repair")
        quarantine.move_in(repository, place, there)
        outcome.set_aside += [path.stem for path in there]
    superseded.finish(repository)


def _manifests(repository: Repository) -> Iterable[Manifest]:
    for version in versions.all_versions(repository.database, dump.STATES):
        try:
            yield repository.manifest(version.id)
        except DlvError:
            continue


def _name_layers(repository: Repository, outcome: Repaired) -> None:
    for fault in outcome.report.faults:
        for matrix in fault.matrices:
            for label, name in dump.layers_of_matrix(repository.database, matrix):
                found = outcome.layers.setdefault(label, [])
                if name not in found:
                    found.append(name)
