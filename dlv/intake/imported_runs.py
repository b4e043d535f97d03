"""Turn runs of other tools into versions, and list the versions made and the files skipped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace

from dlv.canonical import timestamp
from dlv.dataclass import dataclass
from dlv.metadata import versions
from dlv.objects.manifest import Manifest
from dlv.repository.handle import Change, Repository
from dlv.versions.commit import NewVersion, publish
from dlv.versions.draft import Draft
from dlv.weights.writer import PackRecord


@dataclass(frozen=True)
class ImportedRun:
    """`new` is False where the run was imported before."""

    run: str
    title: str
    id: str
    name: str
    number: int | None
    new: bool
    steps: list[int | None]
    series: list[tuple[str, int]] = field(default_factory=list)  # tag, points
    raw: int = 0

    @property
    def label(self) -> str:
        return self.id[:12] if self.number is None else f"{self.name}@{self.number}"


@dataclass
class Imported:
    versions: list[ImportedRun] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    stored: int = 0
    seconds: float = 0.0


def write_imported(repository: Repository, manifest: Manifest) -> Manifest:
    """Write the manifest of a run; with another time where its version was undone or removed."""
    there = versions.by_id(repository.database, manifest.id)
    if there is not None and there.state not in ("live", "recovered"):
        manifest = replace(manifest, created=timestamp())
    repository.write_manifest(manifest)
    return manifest


def publish_imported(
    change: Change, packs: Sequence[PackRecord], runs: Iterable[tuple[Draft, Manifest]]
) -> set[str]:
    """Make runs versions, but those that another import has made; the ids of the new ones."""
    ready = [NewVersion(manifest, draft.network, draft.summaries) for draft, manifest in runs]
    published = publish(change, packs, ready, skip_known=True)
    labels = [version.label for version in published]
    more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
    change.summary = ", ".join(labels[:3]) + more
    return {version.id for version in published}
